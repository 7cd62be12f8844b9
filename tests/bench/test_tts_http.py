import os
from contextlib import ExitStack

import pytest
from serve_process import Server
from tts_ask import FRAME_S, Asking
from tts_http import Extent, Serving, closed_levels, cold_reference, offered, read_ahead
from tts_load import Askers
from tts_unread import unread

from omnirt.testing.clone_pipeline import clone_facts, clone_plan
from omnirt.testing.live_gateway import LiveGateway
from omnirt.testing.scripted_service import (
    Fail,
    Say,
    ScriptedService,
    speech_facts,
    speech_plan,
    tone,
)

FRAMES = 5


def speak(submit):
    return [Say(tone(FRAME_S)) for _ in range(submit.params["max_new_tokens"])]


@pytest.fixture(scope="module")
def gateway():
    with LiveGateway(lambda: ScriptedService(speech_plan(), speech_facts(), speak)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def cloning():
    with LiveGateway(lambda: ScriptedService(clone_plan(), clone_facts(), speak)) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def load(gateway):
    with ExitStack() as stack:
        askers = stack.enter_context(Askers(2))
        asking = Asking(gateway.url, FRAMES, model=offered(gateway.url)["id"], voice="heart")
        yield Serving(Server(gateway.url, os.getpid()), askers, asking, Extent(2, 2, 0.2, 20, 0.4), "cpu")


def test_levels_of_a_closed_loop_are_whole_and_of_the_forced_length(gateway, load):
    said = []
    part = closed_levels(load, [1, 3], said.append)
    assert [level["name"] for level in part["levels"]] == ["C=1", "C=3"]
    assert [level["requests"] for level in part["levels"]] == [24, 24]
    for level in part["levels"]:
        assert (level["errors"], level["wrong"], level["codes"]) == (0, 0, {})
        assert level["audio_s_per_s"] > 0
        assert level["head_share"] >= 0
    assert len(part["repetitions"]["C=1"]) == 2
    assert len(said) == 2


def test_an_open_loop_lasts_as_long_as_its_rate_needs(load):
    assert [load.extent.of_rate(rate) for rate in (1, 80, 1000)] == [0.4, 0.25, 0.2]
    row = load.opened(50)
    assert (row["name"], row["errors"], row["wrong"]) == ("50 a second", 0, 0)
    assert row["requests"] > 5


def test_a_listener_that_does_not_read_is_beside_every_second_round(load):
    part = load.unread(2, 4000)
    assert [level["requests"] for level in part["levels"]] == [8, 8]
    assert [level["errors"] for level in part["levels"]] == [0, 0]
    assert part["cost"] < 1
    assert {name: len(done) for name, done in part["repetitions"].items()} == {"alone": 2, "beside": 2}


def test_new_recordings_are_sent_with_each_request(cloning, load):
    heard = []

    def script(submit):
        heard.append([payload.samples.tobytes() for modality, payload in submit.inputs if modality == "audio"])
        return speak(submit)

    cloning.service.script = script
    load.asking, before = Asking(cloning.url, FRAMES, reference="-", reference_text="Said."), load.asking
    part = cold_reference(load, lambda _: None)
    load.asking = before
    assert part["levels"][0]["codes"] == {}
    assert len(heard) == 25
    assert len({b"".join(pieces) for pieces in heard}) == 25


def test_a_listener_that_is_refused_is_an_error(gateway, load):
    gateway.service.script = lambda submit: [Fail("stage_lost")]
    with pytest.raises(ConnectionError, match="does not read was answered"), unread(load.asking):
        pass
    gateway.service.script = speak


def test_weights_are_read_wherever_they_lie(tmp_path):
    (tmp_path / "inner").mkdir()
    for place in (tmp_path, tmp_path / "inner"):
        (place / "model.safetensors").write_bytes(bytes(1_000_000))
    assert read_ahead(tmp_path) == 0.002
