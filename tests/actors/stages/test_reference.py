import json
import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.stages.reference import Reference, ReferenceOptions
from omnirt.errors import ConfigError, InvalidRequest
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Pcm

PARITY = Path(__file__).parents[2] / "parity" / "qwen_clone_reference.py"
RATE = 24_000


def context():
    return Context("reference", "cpu", 0, 1, lambda text: None)


class Scripted:
    """Stands for the encoders: a voice that tells what was heard."""

    def __init__(self):
        self.heard = []

    def encode(self, samples, with_codes):
        self.heard.append((len(samples), with_codes))
        frames = -(-len(samples) // 1920) if with_codes else 0
        loudest = np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples)
        return SpeakerVoice(np.full(4, loudest, np.float32), np.full((frames, 16), int(loudest) % 2048, np.int32))


class ScriptedReference(Reference):
    def _load_encoder(self, folder, ctx):
        return Scripted()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def make(folder):
    def made(kind=ScriptedReference, **options):
        stage = kind(ReferenceOptions(weights=options.pop("weights", str(folder)), **options))
        stage.start(context())
        return stage

    return made


def tone(hertz, seconds=1.0, rate=RATE):
    return (9_000 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)).astype(np.int16)


def request(number=1, **params):
    return Request(RequestId(number), f"r{number}", number, params, 0)


def give(stage, asked, *pieces, rate=RATE):
    for seq, piece in enumerate(pieces):
        stage.admit(context(), Chunk(asked, "audio", Pcm(piece, rate), seq))
    stage.close(context(), asked)


def voices(stage, requests):
    """By request, after as many steps as it takes; and how many those were."""
    found, steps = {}, 0
    waiting = list(requests)
    while waiting:
        steps += 1
        for emission in stage.step(context(), waiting):
            assert (emission.payload is not None) == emission.end
            if emission.end:
                found[emission.request.id] = emission.payload
        waiting = [each for each in waiting if each.id not in found]
        assert steps < 100
    return found, steps


def voice_of(stage, asked):
    return voices(stage, [asked])[0][asked.id]


def test_a_recording_becomes_a_voice_however_it_was_cut(make):
    stage = make()
    whole, cut, resampled = request(1), request(2), request(3)
    give(stage, whole, tone(440))
    give(stage, cut, *np.split(tone(440), [100, 9_000]))
    give(stage, resampled, tone(440, rate=48_000), rate=48_000)
    found, _ = voices(stage, [whole, cut, resampled])
    assert {voice.embedding[0] for voice in found.values()} == {440.0}
    assert {len(voice.codes) for voice in found.values()} == {13}
    assert whole.report == {"reference_s": 1.0}


def test_nothing_is_said_before_the_input_is_over(make):
    stage, asked = make(), request()
    stage.admit(context(), Chunk(asked, "audio", Pcm(tone(440), RATE), 0))
    assert stage.step(context(), [asked]) == []
    stage.close(context(), asked)
    assert [emission.end for emission in stage.step(context(), [asked])] == [True]


def test_a_recording_whose_length_is_known_need_not_wait_for_the_end_of_the_text(make):
    stage, asked = make(), request(reference_samples=RATE)
    first, second = np.split(tone(440), [9_000])
    stage.admit(context(), Chunk(asked, "audio", Pcm(first, RATE), 0))
    assert stage.step(context(), [asked]) == []
    stage.admit(context(), Chunk(asked, "audio", Pcm(second, RATE), 1))
    assert [emission.end for emission in stage.step(context(), [asked])] == [True]
    stage.close(context(), asked)


def test_each_of_many_requests_at_a_time_gets_its_own_voice(make):
    """Pieces of all of them arrive mixed, and some bring what others brought."""
    stage = make()
    asked = [request(number) for number in range(1, 17)]
    hertz = {each.id: 300.0 + 100 * (each.id // 2) for each in asked}
    pieces = {each.id: np.split(tone(hertz[each.id]), [5_000, 12_000]) for each in asked}
    for part in range(3):
        for each in asked if part % 2 else reversed(asked):
            stage.admit(context(), Chunk(each, "audio", Pcm(pieces[each.id][part], RATE), part))
    for each in asked:
        stage.close(context(), each)
    found, steps = voices(stage, asked)
    assert {number: voice.embedding[0] for number, voice in found.items()} == hertz
    assert len(stage._encoder.heard) == len(set(hertz.values())) == steps


def test_the_same_recording_in_one_step_is_encoded_once_even_without_memory(make):
    stage = make(cache_mb=0)
    asked = [request(number) for number in (1, 2, 3)]
    for each in asked:
        give(stage, each, tone(440))
    found, steps = voices(stage, asked)
    assert (len(found), steps, len(stage._encoder.heard)) == (3, 1, 1)


def test_a_step_encodes_one_recording_and_answers_what_is_known(make):
    stage = make()
    known, first, second = request(1), request(2), request(3)
    give(stage, known, tone(440))
    voice_of(stage, known)
    again = request(4)
    for each, hertz in ((first, 500), (again, 440), (second, 600)):
        give(stage, each, tone(hertz))
    said = {each.request.id: each.end for each in stage.step(context(), [first, second, again])}
    assert said == {2: True, 3: False, 4: True}


def test_a_voice_is_found_again_and_nobody_can_change_it(make):
    stage, first, second = make(), request(1), request(2)
    give(stage, first, tone(440))
    voice = voice_of(stage, first)
    stage.forget(context(), first)
    give(stage, second, tone(440))
    assert np.array_equal(voice_of(stage, second).codes, voice.codes)
    assert len(stage._encoder.heard) == 1
    assert not voice.codes.flags.writeable
    assert not voice.embedding.flags.writeable


def test_a_voice_outlives_a_restart_but_not_its_checkpoint(make, folder, tmp_path):
    kept = str(tmp_path / "voices")
    counts = []
    for restart in range(3):
        if restart == 2:
            (folder / "config.json").write_text('{"another": "checkpoint"}')
        stage, asked = make(cache=kept), request()
        give(stage, asked, tone(440))
        assert voice_of(stage, asked).embedding[0] == 440.0
        counts.append(len(stage._encoder.heard))
    assert counts == [1, 0, 1]


def test_the_embedding_alone_and_the_whole_voice_are_kept_apart(make):
    stage, alone, whole = make(), request(1, x_vector_only_mode=True), request(2, x_vector_only_mode=False)
    for each in (alone, whole):
        give(stage, each, tone(440))
    found, _ = voices(stage, [alone, whole])
    assert found[alone.id].codes.shape == (0, 16)
    assert found[whole.id].codes.shape == (13, 16)


@pytest.mark.parametrize(
    ("samples", "rate", "complaint"),
    [
        (tone(440, 0.2), RATE, "at least 0.5 s"),
        (tone(440, 30.5), RATE, "longer than 30 s"),
        (np.zeros(RATE, np.int16), RATE, "silent"),
        (np.full(RATE, np.nan, np.float32), RATE, "no numbers"),
        (tone(440).astype(np.float32), RATE, "-1 to 1"),
        (tone(440), 400, "rate"),
        (tone(440).astype(np.float64), RATE, "int16 or float32"),
    ],
)
def test_a_recording_that_is_no_use_is_refused_before_it_is_encoded_and_harms_nobody(make, samples, rate, complaint):
    stage, bad, good = make(), request(1), request(2)
    give(stage, good, tone(440))
    with pytest.raises(InvalidRequest, match=complaint) as caught:
        give(stage, bad, samples, rate=rate)
    assert caught.value.param == "ref_audio"
    stage.forget(context(), bad)
    assert voice_of(stage, good).embedding[0] == 440.0
    assert len(stage._encoder.heard) == 1


def test_a_request_without_a_recording_is_refused(make):
    with pytest.raises(InvalidRequest, match="at least"):
        make().close(context(), request())


def test_a_second_recording_is_refused(make):
    stage, asked = make(), request()
    stage.admit(context(), Chunk(asked, "audio", Pcm(tone(440), RATE, 0), 0))
    with pytest.raises(InvalidRequest, match="one recording"):
        stage.admit(context(), Chunk(asked, "audio", Pcm(tone(500), RATE, 1), 1))


@pytest.mark.parametrize("value", ["true", 1, []])
def test_a_mode_that_is_no_boolean_is_refused(make, value):
    with pytest.raises(InvalidRequest) as caught:
        give(make(), request(x_vector_only_mode=value), tone(440))
    assert caught.value.param == "x_vector_only_mode"


def test_what_a_forgotten_request_brought_is_gone(make):
    stage, asked = make(), request()
    stage.admit(context(), Chunk(asked, "audio", Pcm(tone(440), RATE), 0))
    stage.forget(context(), asked)
    assert asked.state is None
    give(stage, asked, tone(500))
    assert voice_of(stage, asked).embedding[0] == 500.0


def test_the_gateway_learns_what_kind_of_recording_is_wanted(make):
    facts = make(seconds_max=20.0).facts()
    assert facts["cloning"] is True
    assert (facts["reference_rate"], facts["reference_seconds_max"]) == (24_000, 20.0)
    assert {"ref_audio", "x_vector_only_mode"} <= set(facts["parameters"])
    assert "sample_rate" not in facts  # that is the voice's


@pytest.mark.parametrize(
    "options",
    [{"seconds_min": 0.1}, {"seconds_min": 5.0, "seconds_max": 4.0}, {"seconds_max": 1e9}, {"cache_mb": -1}],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_loaded(options):
    with pytest.raises(ConfigError):
        Reference(ReferenceOptions(weights="/nowhere", **options)).start(context())


def test_an_option_that_is_misspelt_is_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"weights": "x", "cache_gb": 1}, ReferenceOptions)


def test_its_class_is_read_without_loading_what_it_computes_with():
    code = "import sys, omnirt.actors.stages.reference; print(json.dumps([n for n in HEAVY if n in sys.modules]))"
    heavy = "import json; HEAVY = ['torch', 'transformers', 'scipy']; "
    done = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []


def test_on_a_tiny_checkpoint_it_gives_the_voice_of_the_reference(make, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    reference = runpy.run_path(str(PARITY))
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small lose time to more
    try:
        weights = str(reference["write_checkpoint"](tmp_path / "base"))
        stage, whole, alone = make(Reference, weights=weights, seconds_max=2.0), request(1), request(2)
        alone.params = {"x_vector_only_mode": True}
        for each in (whole, alone):
            give(stage, each, reference["recording"](24_000))
        found, _ = voices(stage, [whole, alone])
    finally:
        torch.set_num_threads(before)
    with np.load(reference["GOLDEN"]) as golden:
        assert np.array_equal(found[whole.id].codes, golden["codes_24000"])
        assert np.abs(found[whole.id].embedding - golden["embedding_24000"]).max() < 1e-5
    assert len(found[alone.id].codes) == 0


def test_a_checkpoint_that_copies_no_voices_stops_the_start_with_what_to_do(make, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = runpy.run_path(str(PARITY))["write_checkpoint"](tmp_path / "named", kind="voice_design")
    with pytest.raises(ConfigError, match="this one is voice_design: leave the stage out, or name other weights"):
        make(Reference, weights=str(folder))
