import msgspec
import pytest

from omnirt.pipeline.spec import EdgeSpec, NodeSpec, StageSpec, given


def test_a_stage_runs_on_a_node_of_its_own_unless_it_names_one():
    assert StageSpec(name="a", actor="m:C").group == "a"
    assert StageSpec(name="a", actor="m:C", node="b").group == "b"


def test_only_what_the_file_says_is_given():
    edge = msgspec.convert({"from": "a.x", "to": "b.y", "credit": 3}, EdgeSpec)
    assert edge.source == "a.x"
    assert given(edge, "credit", "window", "stream") == {"credit": 3}


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:x", []])
def test_a_device_is_cpu_or_a_numbered_card(device):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"device": device}, NodeSpec)


def test_unknown_keys_are_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"gpu": 1}, NodeSpec)
