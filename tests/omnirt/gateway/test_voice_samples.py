"""Recordings of voices, decoded and kept."""

import asyncio
import base64

import numpy as np
import pytest

from omnirt.errors import Overloaded
from omnirt.gateway import voice_samples
from omnirt.gateway.config import GatewayConfig
from omnirt.gateway.core import Core
from omnirt.gateway.errors import ApiError
from omnirt.gateway.facts import PipelineFacts
from omnirt.gateway.media import wav_header
from omnirt.gateway.speech_reference import Reference
from omnirt.gateway.voice_samples import VoiceSamples
from omnirt.gateway.voice_store import StoredVoice
from omnirt.testing.clone_pipeline import clone_plan
from omnirt.testing.recordings import recorded, wav
from omnirt.testing.scripted_service import ScriptedService, tone

FACTS = PipelineFacts(cloning=True)
BLOCKED = ("ftp://host/a.wav", "javascript:alert(1)", "gopher:x", "file:///etc/passwd", "http://127.0.0.1/a.wav")


@pytest.fixture
def core(tmp_path):
    config = GatewayConfig(voices_dir=str(tmp_path), reference_s_max=20.0)
    core = Core(ScriptedService(clone_plan()), config)
    yield core
    core.close()


@pytest.fixture
def samples(core):
    return VoiceSamples(core)


def kept(core, name, data):
    upload = core.voices.begin()
    upload.write(data)
    voice = core.voices.write(StoredVoice("", name, 0, "audio_sample"), upload)
    core.voices.add(voice)
    return voice


def load(samples, source, facts=FACTS, keep=lambda seconds: None):
    return asyncio.run(samples.load(source, facts, keep))


def refusal(samples, source, facts=FACTS):
    with pytest.raises(ApiError) as caught:
        load(samples, source, facts)
    return caught.value.refusal


def seconds(pieces):
    return sum(piece.samples.size / piece.rate for piece in pieces)


@pytest.mark.parametrize("spelt", ["{}", "data:audio/wav;base64,{}", "data:;base64,{}"])
def test_what_comes_with_a_request_is_decoded_at_the_rate_that_is_wanted(samples, spelt):
    source = Reference(spelt.format(base64.b64encode(wav(0.5, 24_000)).decode()))
    (piece,) = load(samples, source)
    assert (piece.rate, piece.samples.size, piece.samples.dtype) == (24_000, 12_000, np.int16)
    assert piece.samples.tobytes() == wav(0.5, 24_000)[44:]
    (other,) = load(samples, source, PipelineFacts(cloning=True, reference_rate=16_000))
    assert (other.rate, abs(other.samples.size - 8_000) < 50) == (16_000, True)


@pytest.mark.parametrize("kind", [("mp3", "libmp3lame", 44_100), ("flac", "flac", 24_000), ("ogg", "libopus", 48_000)])
def test_the_usual_containers_pass(samples, kind):
    container, codec, rate = kind
    data = base64.b64encode(recorded(container, codec, 3.0, rate)).decode()
    assert abs(seconds(load(samples, Reference(data))) - 3.0) < 0.1


@pytest.mark.parametrize("url", BLOCKED)
def test_what_is_never_fetched_is_refused_as_everywhere(samples, url):
    found = refusal(samples, Reference(url, "ref_audio"))
    assert (found.status in (400, 403), found.param) == (True, "ref_audio")


@pytest.mark.parametrize("text", ["AAAA", "/etc/passwd", "not base64!", "YWJjZGVmZ2g=", "data:,plain"])
def test_what_is_no_recording_is_refused_by_its_field(samples, text):
    found = refusal(samples, Reference(text, "references[0].audio_path"))
    assert (found.status, found.param) == (400, "references[0].audio_path")


@pytest.mark.parametrize(("asked", "limit"), [(float("inf"), 20), (8.0, 8)])
def test_a_long_recording_is_refused_with_the_limit_before_all_of_it_is_decoded(samples, asked, limit):
    facts = PipelineFacts(cloning=True, reference_s_max=asked)
    minutes = Reference(base64.b64encode(recorded("ogg", "libopus", 200.0, 8_000)).decode())
    taken = []
    with pytest.raises(ApiError, match=f"the limit is {limit} s"):
        load(samples, minutes, facts, taken.append)
    assert sum(taken) <= limit
    exact = Reference(base64.b64encode(wav(float(limit), 24_000)).decode())
    assert seconds(load(samples, exact, facts)) == limit


def test_room_is_asked_for(samples):
    def keep(amount):
        raise Overloaded(f"{amount}")

    with pytest.raises(Overloaded, match="5"):
        load(samples, Reference(base64.b64encode(wav(5.0)).decode()), keep=keep)


def test_a_long_recording_travels_in_pieces_that_fit(core):
    plan = clone_plan()
    edges = [type(e)(**{f: getattr(e, f) for f in e.__struct_fields__} | {"chunk_bytes_max": 4801}) for e in plan.edges]
    core.service.plan = type(plan)(**{f: getattr(plan, f) for f in plan.__struct_fields__} | {"edges": tuple(edges)})
    pieces = load(VoiceSamples(core), Reference(base64.b64encode(wav(1.0, 24_000)).decode()))
    assert [piece.samples.nbytes for piece in pieces] == [4800] * 10
    assert b"".join(piece.samples.tobytes() for piece in pieces) == wav(1.0, 24_000)[44:]


@pytest.fixture
def decoded(monkeypatch):
    """What was decoded, one entry each."""
    found = []
    real = voice_samples.recording

    async def counting(*args, **more):
        found.append(args)
        return await real(*args, **more)

    monkeypatch.setattr(voice_samples, "recording", counting)
    return found


@pytest.mark.parametrize("is_uploaded", [True, False])
def test_a_sample_is_decoded_once_however_many_ask(core, samples, decoded, is_uploaded):
    data = wav(1.0, 24_000)
    source = kept(core, "Ann", data) if is_uploaded else Reference(base64.b64encode(data).decode())

    async def many():
        return await asyncio.gather(*(samples.load(source, FACTS, lambda _: None) for _ in range(20)))

    first, *others = asyncio.run(many())
    assert all(pieces is first for pieces in others)
    assert load(samples, source) is first
    assert len(decoded) == 1
    with pytest.raises(ValueError, match="read-only"):
        first[0].samples[0] = 1


def test_a_recording_that_is_known_asks_for_room_too(samples):
    source = Reference(base64.b64encode(wav(5.0)).decode())
    taken = []
    for _ in range(2):
        load(samples, source, keep=taken.append)
    assert taken == [5.0, 5.0]


def test_another_recording_at_the_same_address_is_heard(core, samples, decoded, monkeypatch):
    answers = [wav(1.0), wav(2.0), wav(2.0)]

    async def fetched(core, url, param):
        return answers.pop(0)

    monkeypatch.setattr(voice_samples, "fetch", fetched)
    found = [seconds(load(samples, Reference("http://host/voice.wav"))) for _ in range(3)]
    assert (found, len(decoded)) == ([1.0, 2.0, 2.0], 2)


def test_a_recording_that_cannot_be_read_is_refused_each_time(samples, decoded):
    broken = base64.b64encode(wav(1.0)[:-100]).decode()
    for param in ("ref_audio", "references[0].audio_path"):
        assert refusal(samples, Reference(broken, param)).param == param
    assert len(decoded) == 2


def test_who_waits_for_somebody_who_went_decodes_it(samples):
    source = Reference(base64.b64encode(wav(1.0)).decode())

    async def ask():
        return await samples.load(source, FACTS, lambda _: None)

    async def leave():
        first, second = asyncio.ensure_future(ask()), asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        first.cancel()
        return seconds(await second)

    assert asyncio.run(leave()) == 1.0


def test_the_least_recently_used_sample_goes_first(core, monkeypatch):
    monkeypatch.setattr(voice_samples, "UPLOADED_S_MAX", 25.0)
    samples = VoiceSamples(core)
    ann, bob, cy = (kept(core, name, wav(10.0, 8_000)) for name in ("Ann", "Bob", "Cy"))
    first, _ = load(samples, ann), load(samples, bob)
    assert load(samples, ann) is first
    load(samples, cy)
    assert load(samples, ann) is first
    assert samples._uploaded.keys == [cy.id, ann.id]


def test_a_deleted_voice_is_gone(core, samples):
    voice = kept(core, "Ann", wav(1.0))
    load(samples, voice)
    core.voices.remove(voice)
    samples.drop(voice)
    core.voices.erase(voice)
    found = refusal(samples, voice)
    assert (found.status, found.param) == (400, "voice")
    assert samples._uploaded.seconds == 0


def test_a_voice_that_is_deleted_while_it_is_read_is_not_kept(core, samples):
    voice = kept(core, "Ann", wav(1.0))
    core.voices.remove(voice)
    assert seconds(load(samples, voice)) == 1.0
    assert not samples._uploaded.keys


def test_an_upload_is_checked_before_it_is_kept(core, samples, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(wav(1.0))
    bad.write_bytes(wav(1.0)[:-100])
    asyncio.run(samples.check(good, "audio_sample", FACTS))
    with pytest.raises(ApiError, match="cut off"):
        asyncio.run(samples.check(bad, "audio_sample", FACTS))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (wav(0.3), "0.30 s long; at least 0.5 s"),
        (wav_header(16_000, 32_000) + bytes(32_000), "silent"),
        (wav_header(16_000, 32_000) + np.full(16_000, 9_000, np.int16).tobytes(), "silent"),
        (wav_header(16_000, 32_000) + (tone(1.0, 16_000) // 200).tobytes(), "silent"),
    ],
)
def test_an_upload_that_no_voice_can_be_made_of_is_refused(core, samples, tmp_path, data, why):
    path = tmp_path / "sample"
    path.write_bytes(data)
    with pytest.raises(ApiError, match=why):
        asyncio.run(samples.check(path, "audio_sample", PipelineFacts(cloning=True, reference_s_min=0.5)))
