from omnirt.pipeline.graph import Wire, cycles_of, ends_of, reachable, wires_of
from omnirt.pipeline.spec import EdgeSpec, PipelineSpec, StageSpec
from omnirt.runtime.stage import Stage
from omnirt.wire.payload import Text


class Both(Stage):
    accepts = {"text": Text, "audio": Text}
    emits = {"text": Text}


def spec(*edges, inputs=("text",), final="text"):
    stages = (StageSpec(name="a", actor="m:A"), StageSpec(name="b", actor="m:B", final=final))
    return PipelineSpec(name="p", inputs=inputs, outputs=("text",), stage=stages, edge=edges)


def names(wires):
    return [wire.name for wire in wires]


def test_an_edge_names_a_stage_and_a_port_at_both_ends():
    assert ends_of(EdgeSpec(source="a.x", to="b.y.z")) == ("a", "x", "b", "y.z")
    assert ends_of(EdgeSpec(source="a", to="b.y")) is None


def test_inputs_go_to_every_port_of_their_name_that_no_edge_feeds():
    wires = wires_of(spec(EdgeSpec(source="a.text", to="b.text"), inputs=("text", "audio")), {"a": Both, "b": Both})
    assert names(wires) == [
        "a.text -> b.text",
        "client.text -> a.text",
        "client.audio -> a.audio",
        "client.audio -> b.audio",
        "b.text -> client.text",
    ]


def test_an_explicit_edge_to_the_client_replaces_the_implied_one():
    wires = wires_of(spec(EdgeSpec(source="b.other", to="client.text", credit=2)), {})
    assert names(wires) == ["b.other -> client.text"]


def wires(*pairs):
    return [Wire(pair[0], "x", pair[1], "x") for pair in pairs]


def test_every_simple_cycle_is_found_once():
    found = cycles_of(wires("ab", "bc", "ca", "cb", "dd", "ce"))
    assert sorted("".join(wire.source for wire in cycle) for cycle in found) == ["abc", "bc", "d"]


def test_a_graph_without_cycles_has_none():
    assert cycles_of(wires("ab", "ac", "bd", "cd")) == []


def test_reach_follows_wires_both_ways():
    graph = wires("ab", "bc", "xc")
    assert reachable({"a"}, graph) == {"a", "b", "c"}
    assert reachable({"c"}, graph, backwards=True) == {"a", "b", "c", "x"}
