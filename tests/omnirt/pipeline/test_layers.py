from omnirt.pipeline.layers import merged


def test_later_layers_win_and_values_remember_where_they_were_written(write, talk):
    path = write(talk)
    overlay = write('[[stage]]\nname = "tts"\nbatch = 2\n\n[node.speech]\ndevice = "cuda:1"\n', "gpu.toml")
    tree = merged(path, [overlay], ["stage.tts.batch=4", "limits.requests_max=8"])
    assert not tree.findings
    assert tree.values["stage"]["tts"]["batch"] == 4
    assert tree.values["stage"]["tts"]["actor"] == "omnirt_test_stages:Talker"
    assert tree.values["limits"] == {"requests_max": 8}
    assert str(tree.origin(("stage", "tts", "batch"))) == "--set stage.tts.batch=4"
    assert str(tree.origin(("node", "speech", "device"))) == f"{overlay}:6"
    assert str(tree.origin(("stage", "tts", "node"))) == f"{path}:15"


def test_values_on_the_command_line_are_toml_or_else_text(write, talk):
    tree = merged(
        write(talk), (), ["node.speech.device=cuda:0", "stage.llm.options.weights=heart", 'name="x"', "a=[1]"]
    )
    assert tree.values["node"]["speech"]["device"] == "cuda:0"
    assert tree.values["stage"]["llm"]["options"]["weights"] == "heart"
    assert tree.values["name"] == "x"
    assert tree.values["a"] == [1]


def test_an_edge_is_set_by_its_source(write, talk):
    tree = merged(write(talk), (), ["edge.llm.codes.credit=3"])
    assert tree.values["edge"]["llm.codes -> tts.codes"]["credit"] == 3


def test_overlays_and_settings_add_no_stages_or_edges(write, talk):
    overlay = write('[[stage]]\nname = "tss"\nbatch = 2\n', "o.toml")
    tree = merged(write(talk), [overlay], ["stage.lm.batch=2", "edge.llm.code.credit=2"])
    messages = [str(finding) for finding in tree.findings]
    assert messages == [
        f"{overlay}:1: error: stage tss: the pipeline has no such stage (did you mean 'tts'?)",
        "--set stage.lm.batch=2: error: stage lm: the pipeline has no such stage (did you mean 'llm'?)",
        "--set edge.llm.code.credit=2: error: edge llm.code: the pipeline file has no such edge "
        "(did you mean 'llm.codes'?); an implied one must be written there to be set",
    ]


def test_two_stages_of_one_name_are_found_with_the_line_of_the_second(write):
    path = write('[[stage]]\nname = "a"\n\n[[stage]]\nname = "a"\n')
    (finding,) = merged(path).findings
    assert str(finding).startswith(f"{path}:4: error: stage a: there are two of this name")


def test_what_is_not_toml_is_one_finding_with_its_line(write):
    path = write('name = "x"\nbroken = = 2\n')
    (finding,) = merged(path).findings
    assert finding.origin.line == 2
    assert "is not TOML" in finding.message


def test_a_setting_without_a_value_says_how_to_write_one(write, talk):
    (finding,) = merged(write(talk), (), ["stage.tts.batch"]).findings
    assert "key.path=value" in finding.message
