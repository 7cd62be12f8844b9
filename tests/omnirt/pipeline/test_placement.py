from omnirt.pipeline.deploy import load_plan
from omnirt.wire.plan import EdgePlan, NodePlan, StagePlan


def test_a_plan_has_the_stages_edges_and_nodes_of_the_file(write, talk):
    plan = load_plan(write(talk), cores=4)
    assert [(stage.name, stage.group, stage.final) for stage in plan.stages] == [
        ("llm", "llm", "text"),
        ("tts", "speech", "audio"),
    ]
    assert [(edge.index, edge.source, edge.port, edge.target, edge.to_port) for edge in plan.edges] == [
        (0, "llm", "codes", "tts", "codes"),
        (1, "client", "text", "llm", "text"),
        (2, "client", "text", "tts", "text"),
        (3, "llm", "text", "client", "text"),
        (4, "tts", "audio", "client", "audio"),
    ]
    assert [node.name for node in plan.nodes] == ["llm.0", "speech.0"]
    assert [node.stages for node in plan.nodes] == [("llm",), ("tts",)]


def test_what_the_file_leaves_out_has_the_defaults_of_the_plan(write, talk):
    plan = load_plan(write(talk), cores=2)
    assert plan.stages[1] == StagePlan("tts", "omnirt_test_stages:Talker", "speech", final="audio")
    assert plan.edges[3] == EdgePlan(3, "llm", "text", "client", "text")
    assert plan.nodes[1] == NodePlan("speech.0", "speech", 0, ("tts",))


def test_weights_go_to_the_stages_that_take_some(write, talk):
    plan = load_plan(write(talk))
    assert plan.stage("llm").options == {"weights": "some/model"}
    assert plan.stage("tts").options == {}
    own = load_plan(write(talk), (), ["stage.llm.options.weights=mine"])
    assert own.stage("llm").options == {"weights": "mine"}


def test_a_stage_that_changes_the_world_is_planned_so(write):
    text = 'name="p"\ninputs=["text"]\noutputs=["text"]\n[[stage]]\nname="a"\nfinal="text"\n'
    assert not load_plan(write(text + 'actor="omnirt_test_stages:Policy"\n')).stages[0].pure


def test_replicas_take_the_devices_in_turn(write, talk):
    overlay = write('[node.speech]\nreplicas = 3\ndevice = ["cuda:0", "cuda:2"]\n', "gpu.toml")
    plan = load_plan(write(talk), [overlay])
    assert [(node.name, node.device) for node in plan.replicas("speech")] == [
        ("speech.0", "cuda:0"),
        ("speech.1", "cuda:2"),
        ("speech.2", "cuda:0"),
    ]


def test_cores_are_shared_over_the_nodes_that_name_no_threads(write, talk):
    plan = load_plan(write(talk), (), ["node.speech.replicas=2"], cores=9)
    assert [node.threads for node in plan.nodes] == [3, 3, 3]
    plan = load_plan(write(talk), (), ["node.speech.replicas=2", "node.llm.threads=5"], cores=9)
    assert [node.threads for node in plan.nodes] == [5, 2, 2]
    assert [node.threads for node in load_plan(write(talk), cores=1).nodes] == [1, 1]


def test_processes_that_exchange_records_are_linked_and_no_others(write, talk):
    plan = load_plan(write(talk), (), ["node.speech.replicas=2"])
    assert [(link.a, link.b) for link in plan.links] == [
        ("llm.0", "speech.0"),
        ("llm.0", "speech.1"),
        ("head", "llm.0"),
        ("head", "speech.0"),
        ("head", "speech.1"),
    ]


def test_fused_stages_need_no_link(write, talk):
    plan = load_plan(write(talk), (), ["stage.llm.node=speech"])
    assert [(link.a, link.b) for link in plan.links] == [("head", "speech.0")]
    assert plan.nodes[0].stages == ("llm", "tts")


def test_the_loop_of_the_maze_answers_its_window_and_has_credit_for_it():
    plan = load_plan("maze")
    (ask,) = [edge for edge in plan.edges if edge.window]
    (answer,) = [edge for edge in plan.edges if edge.answers >= 0]
    assert (ask.source, ask.target, answer.source, answer.target) == ("walk", "guide", "guide", "walk")
    assert answer.answers == ask.index
    assert answer.credit == ask.window == 3
