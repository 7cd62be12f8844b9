"""Audio in: every way to write base64, and bytes to pieces."""

import asyncio
import base64
import io
import threading

import numpy as np
import pytest

from omnirt.gateway.audio_in import decode_base64, decoded, recording
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.testing.recordings import recorded, wav
from omnirt.testing.scripted_service import ScriptedService

DATA = bytes(range(256)) + b"\xfb\xff\xfe"
PARAM = "messages[0].content[1].input_audio.data"


@pytest.fixture
def core():
    core = Core(ScriptedService(), GatewayConfig(recording_s_max=60.0))
    yield core
    core.close()


def refusal(work, *args):
    with pytest.raises(ApiError) as caught:
        work(*args)
    return caught.value.refusal


def refused(core, data, seconds_max=None):
    return refusal(lambda: asyncio.run(recording(core, data, PARAM, seconds_max)))


@pytest.mark.parametrize("length", [1, 2, 3, 100, 256, 257, 258, 259])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    "prefix", ["", "data:audio/wav;base64,", "data:;base64,", " data:audio/ogg; codecs=opus;BASE64,"]
)
def test_every_spelling_of_base64(length, encode, padded, prefix):
    text = encode(DATA[:length]).decode()
    assert decode_base64(prefix + (text if padded else text.rstrip("=")), PARAM) == DATA[:length]


def test_line_breaks_and_blanks_do_not_matter():
    text = base64.encodebytes(DATA).decode().replace("\n", "\r\n \t")
    assert decode_base64(text, PARAM) == DATA


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("====", "empty"),
        ("data:audio/wav;base64,", "empty"),
        ("AAAAA", "truncated"),
        ("AAAB/w==AAAA", "not valid"),
        ("AB", "truncated"),
        ("AAB", "truncated"),
        ("AA=A", "not valid"),
        ("AA=", "padding"),
        ("AAAA=", "padding"),
        ("A===", "truncated"),
        ("AA!A", "not valid"),
        ("\u00e4AAA", "not valid"),
        ("data:audio/wav,AAAA", "not base64"),
    ],
)
def test_what_is_no_base64_is_refused_with_its_name(text, why):
    found = refusal(decode_base64, text, PARAM)
    assert (found.status, found.param) == (400, PARAM)
    assert why in found.message
    assert PARAM in found.message


def test_a_cut_text_is_noticed_wherever_its_bits_show_it():
    text = base64.b64encode(np.random.default_rng(1).bytes(3_000)).decode()
    noticed = 0
    for length in range(100, 400):
        try:
            decode_base64(text[:length], PARAM)
        except ApiError:
            noticed += 1
    assert noticed > 200, "a cut between two groups of four alone cannot be seen"


def test_pieces_of_a_recording(core):
    pieces = asyncio.run(recording(core, wav(32.5, 24_000), PARAM))
    assert [piece.samples.size for piece in pieces] == [240_000, 240_000, 40_000]
    assert {(piece.rate, piece.clip, str(piece.samples.dtype)) for piece in pieces} == {(16_000, 0, "int16")}


@pytest.mark.parametrize(
    ("data", "code", "why"),
    [
        (b"", "invalid_value", "is empty; accepted: wav"),
        (b"not audio at all", "unsupported_media", "no container"),
        (wav(1.0)[:-2000], "invalid_value", "cut off: 2000 bytes"),
        (recorded("ogg", "libopus", 61.5), "unsupported_media", "the limit is 60 s"),
        (recorded("adts", "aac", 61.5), "unsupported_media", "the limit is 60 s"),
    ],
)
def test_a_bad_recording_is_the_callers_mistake(core, data, code, why):
    found = refused(core, data)
    assert (found.status, found.code, found.param) == (400, code, PARAM)
    assert why in found.message
    assert PARAM in found.message


def test_a_surface_may_allow_less_but_never_more(core):
    assert "the limit is 5 s" in refused(core, wav(6.0), 5.0).message
    assert "the limit is 60 s" in refused(core, wav(61.0), 500.0).message


def test_room_is_asked_for_piece_by_piece(core):
    asked = []

    def keep(seconds):
        asked.append(seconds)
        if sum(asked) > 20:
            raise MemoryError

    with pytest.raises(MemoryError):
        asyncio.run(decoded(core, io.BytesIO(wav(59.0)), "file", keep=keep))
    assert asked == [15.0, 15.0]


def test_a_caller_that_leaves_ends_the_decoding(core):
    reading, resume = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        reads = 0

        def read(self, size=-1):
            self.reads += 1
            reading.set()
            resume.wait(10.0)
            return super().read(size)

    async def leave():
        source = Slow(recorded("adts", "aac", 50.0))
        work = asyncio.ensure_future(decoded(core, source, "file"))
        await asyncio.get_running_loop().run_in_executor(None, reading.wait, 10.0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        resume.set()
        await core.threaded(lambda: None)
        return source.reads

    assert asyncio.run(leave()) < 40
