import pytest

from omnirt.errors import Unsupported
from omnirt.pipeline.deploy import load_plan
from omnirt.pipeline.router import Router, needed_stages, opened_edges


@pytest.fixture
def router(write, talk):
    router = Router(load_plan(write(talk), (), ["node.speech.replicas=3"]), affinities_max=2)
    for node in ("llm.0", "speech.0", "speech.1", "speech.2"):
        router.ready(node)
    return router


def test_the_replica_with_the_fewest_open_requests_is_chosen(router):
    router.opened("speech.0")
    router.opened("speech.2")
    assert router.choose("speech") == "speech.1"
    router.opened("speech.1")
    router.closed("speech.2")
    assert router.choose("speech") == "speech.2"


def test_of_equals_the_least_recently_chosen_goes_first(router):
    assert [router.choose("speech") for _ in range(4)] == ["speech.0", "speech.1", "speech.2", "speech.0"]


def test_a_replica_that_is_not_ready_or_excluded_is_never_chosen(router):
    router.unready("speech.0")
    assert router.choose("speech", exclude=["speech.1"]) == "speech.2"
    assert router.choose("speech", exclude=["speech.1", "speech.2"]) is None
    assert router.ready_replicas("speech") == ["speech.1", "speech.2"]


def test_requests_of_one_affinity_stay_together_whatever_the_load(router):
    first = router.choose("speech", "ann")
    for _ in range(5):
        router.opened(first)
    assert router.choose("speech", "ann") == first
    assert router.choose("speech", "bob") != first


def test_affinity_moves_with_the_loss_of_its_replica(router):
    first = router.choose("speech", "ann")
    router.unready(first)
    second = router.choose("speech", "ann")
    assert second not in (None, first)
    router.ready(first)
    assert router.choose("speech", "ann") == second


def test_only_so_many_affinities_are_remembered(router):
    first = router.choose("speech", "ann")
    router.opened(first)
    router.choose("speech", "bob")
    router.choose("speech", "cid")
    assert router.choose("speech", "ann") != first


def test_load_survives_the_loss_and_is_closed_by_its_owner(router):
    router.opened("speech.0")
    router.unready("speech.0")
    assert router.load("speech.0") == 1
    router.closed("speech.0")
    router.ready("speech.0")
    assert router.load("speech.0") == 0
    with pytest.raises(AssertionError):
        router.closed("speech.0")


def test_a_request_for_text_never_wakes_the_speech_stages(write, talk):
    plan = load_plan(write(talk))
    assert needed_stages(plan, plan.inputs, ["text"]) == ("llm",)
    assert needed_stages(plan, plan.inputs, ["audio"]) == ("llm", "tts")
    assert [edge.index for edge in opened_edges(plan, plan.inputs, ["text"])] == [1, 3]
    assert [edge.index for edge in opened_edges(plan, plan.inputs, ["audio"])] == [0, 1, 2, 4]
    assert [edge.index for edge in opened_edges(plan, plan.inputs, ["audio", "text"])] == [0, 1, 2, 3, 4]


def test_loops_belong_to_the_completion_set_of_what_they_feed():
    plan = load_plan("maze")
    assert needed_stages(plan, plan.inputs, ["text"]) == ("fork", "walk", "guide", "square", "join")
    assert needed_stages(plan, plan.inputs, ["audio"]) == ("fork", "walk", "guide", "square", "join", "bell")


def test_an_output_the_pipeline_does_not_give_is_refused(write, talk):
    with pytest.raises(Unsupported, match="talk gives text, audio, not video"):
        needed_stages(load_plan(write(talk)), ["text"], ["video"])


def test_what_is_not_given_wakes_no_stage_either(write, talk):
    plan = load_plan(write(talk))
    assert needed_stages(plan, ["text"], ["text"]) == ("llm",)
    with pytest.raises(Unsupported, match="makes no text from nothing"):
        needed_stages(plan, [], ["text"])


TWO_WAYS = """
name = "both"
inputs = ["text", "audio"]
outputs = ["text", "audio"]

[[stage]]
name = "listen"
actor = "omnirt_test_stages:Listener"
final = "text"

[[stage]]
name = "speak"
actor = "omnirt_test_stages:Talker"
final = "audio"

[[edge]]
from = "client.audio"
to = "listen.audio"

[[edge]]
from = "client.text"
to = "speak.text"

[[edge]]
from = "listen.text"
to = "speak.text"
"""


def test_two_ways_through_one_pipeline_wake_only_their_own_stages(write):
    plan = load_plan(write(TWO_WAYS))
    assert needed_stages(plan, ["text"], ["audio"]) == ("speak",)
    assert needed_stages(plan, ["audio"], ["text"]) == ("listen",)
    assert needed_stages(plan, ["audio"], ["audio"]) == ("listen", "speak")
    assert [edge.index for edge in opened_edges(plan, ["text"], ["audio"])] == [1, 4]
