"""What authors of stages get: seeded chance of their own, replies, and the defaults."""

from __future__ import annotations

from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, NoOptions, Request, Stage
from omnirt.wire.payload import Text


def make_request(seed: int = 5) -> Request:
    return Request(RequestId(1), "public", seed, {"voice": "x"}, 99)


def test_chance_belongs_to_the_request_and_its_salt() -> None:
    same = [make_request().random("a").random() for _ in range(2)]
    assert same[0] == same[1]
    assert make_request().random("b").random() != same[0]
    assert make_request(6).random("a").random() != same[0]


def test_a_reply_goes_to_the_request_that_asked() -> None:
    request = make_request()
    emission = Chunk(request, "in", Text("a"), 0).reply("out", Text("b"))
    assert (emission.request, emission.port, emission.payload, emission.end) == (request, "out", Text("b"), False)


def test_a_new_request_has_no_state() -> None:
    assert make_request().state is None


def test_a_stage_has_nothing_to_say_at_the_end_unless_it_does() -> None:
    stage = Stage(NoOptions())
    ctx = Context("s", "cpu", 0, 1, lambda text: None)
    assert stage.facts() == {}
    assert stage.finish(ctx, make_request()) == []
    stage.start(ctx)
    stage.forget(ctx, make_request())
    stage.stop(ctx)


def test_an_engine_is_a_stage_and_an_emission_may_end_without_a_payload() -> None:
    assert issubclass(EngineStage, Stage)
    assert Emission(make_request(), "out", None, end=True).end
