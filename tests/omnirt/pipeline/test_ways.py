import pytest

from omnirt.errors import InvalidRequest, Unsupported
from omnirt.ids import CLIENT
from omnirt.pipeline.deploy import load_plan
from omnirt.pipeline.router import needed_stages, opened_edges
from omnirt.pipeline.ways import Ways


@pytest.fixture
def plan(write, talk):
    return load_plan(write(talk))


def test_a_way_is_what_the_router_says(plan):
    ways = Ways(plan)
    for wanted in (("text",), ("audio",), ("text", "audio")):
        way = ways.of(("text",), wanted)
        assert way.stages == needed_stages(plan, ("text",), wanted)
        assert set(way.groups) == {plan.group_of(stage) for stage in way.stages}
        edges = set(opened_edges(plan, ("text",), wanted))
        assert {edge for these in way.leaving.values() for edge in these} == edges
        assert {edge for these in way.arriving.values() for edge in these} == edges
        assert all(edge.target == end for end, these in way.arriving.items() for edge in these)
        assert way.takes == ("text",)
        assert {edge.to_port for edge in way.arriving[CLIENT]} == set(wanted)
        assert way.is_pure == all(plan.stage(stage).pure for stage in way.stages)


def test_it_is_worked_out_once_in_whatever_order_it_is_asked_for(plan):
    ways = Ways(plan)
    assert ways.of(["text"], ("text", "audio")) is ways.of(("text", "text"), ["audio", "text"])
    assert ways.of(["text"], ("text",)) is not ways.of(["text"], ("audio",))


def test_what_cannot_be_is_refused_each_time(plan):
    ways = Ways(plan)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="not smell"):
            ways.of(("smell", "text"), ("text",))
        with pytest.raises(Unsupported, match="not video"):
            ways.of(("text",), ("video",))
