"""Recordings in, utterances out. Where the rules are meant, a network that takes loudness for likelihood tells them."""

import numpy as np
import pytest

from omnirt.actors.models.silero.network import WINDOW
from omnirt.actors.stages.voice_activity import VoiceActivity, VoiceActivityOptions
from omnirt.errors import ConfigError, StageFailed
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Request
from omnirt.wire.payload import Pcm

CTX = Context("voice_activity", "cpu", 0, 1, lambda text: None)
RATE = 16_000


class Loudness:
    def judge(self, samples, memory):
        return np.minimum(np.abs(samples).reshape(-1, WINDOW).mean(axis=1) * 8, 1.0)


@pytest.fixture(scope="module")
def real():
    stage = VoiceActivity(VoiceActivityOptions())
    stage.start(CTX)
    return stage


def rules(**options):
    stage = VoiceActivity(VoiceActivityOptions(**options))
    stage._network = Loudness()
    return stage


def request(id=1):
    return Request(RequestId(id), f"r{id}", 1, {}, 0)


def listen(stage, *clips, cuts=(), wanted=None):
    """The utterances of a request whose recordings are `clips`."""
    wanted, seq, emissions = wanted or request(), 0, []
    for clip, samples in enumerate(clips):
        for piece in np.split(samples, cuts):
            emissions += stage.step(CTX, [Chunk(wanted, "audio", Pcm(piece, RATE, clip), seq)])
            seq += 1
    emissions += stage.finish(CTX, wanted)
    stage.forget(CTX, wanted)
    assert wanted.state is None
    return [emission.payload for emission in emissions]


def timeline(*stretches):
    """(kind, seconds) -> samples; kind 1 is loud, 0 is silent."""
    random = np.random.default_rng(3)
    parts = [random.normal(0, 9000, round(s * RATE)) if kind else np.zeros(round(s * RATE)) for kind, s in stretches]
    return np.concatenate(parts).clip(-32768, 32767).astype(np.int16)


def spans(utterances):
    return [(round(u.start_s, 1), round(u.start_s + len(u.samples) / RATE, 1)) for u in utterances if len(u.samples)]


def same(one, other):
    fields = ("clip", "start_s", "last", "clip_s")
    return len(one) == len(other) and all(
        np.array_equal(a.samples, b.samples) and all(getattr(a, name) == getattr(b, name) for name in fields)
        for a, b in zip(one, other, strict=True)
    )


def test_speech_is_cut_out_with_a_little_silence_around_it():
    whole = timeline((0, 2), (1, 3), (0, 0.5))
    (utterance,) = listen(rules(), whole)
    assert utterance.start_s == pytest.approx(1.8, abs=0.05)
    assert len(utterance.samples) / RATE == pytest.approx(3.3, abs=0.1)
    first = round(utterance.start_s * RATE)
    assert np.array_equal(utterance.samples, whole[first : first + len(utterance.samples)])
    assert (utterance.last, utterance.clip_s) == (True, 5.5)


def test_short_pauses_stay_inside_and_long_ones_part_utterances():
    heard = listen(rules(), timeline((1, 2), (0, 1), (1, 2), (0, 2.5), (1, 2), (0, 1)))
    assert spans(heard) == [(0.0, 5.1), (7.3, 9.6)]
    assert [utterance.last for utterance in heard] == [False, True]


def test_an_utterance_leaves_once_its_pause_is_long_enough():
    stage, mine = rules(), request()
    chunk = Chunk(mine, "audio", Pcm(timeline((1, 2), (0, 1.0)), RATE), 0)
    assert stage.step(CTX, [chunk]) == []
    (emission,) = stage.step(CTX, [Chunk(mine, "audio", Pcm(timeline((0, 1.5)), RATE), 1)])
    assert not emission.payload.last
    (end,) = stage.finish(CTX, mine)
    assert (len(end.payload.samples), end.payload.last, end.payload.clip_s) == (0, True, 4.5)


def test_what_would_get_too_long_is_cut_at_its_longest_pause():
    heard = listen(rules(joined_s=10.0), timeline((1, 3), (0, 1.0), (1, 2), (0, 0.9), (1, 2), (0, 0.5), (1, 3)))
    assert spans(heard) == [(0.0, 6.1), (6.7, 12.4)]


def test_speech_without_pauses_is_cut_before_it_is_too_long():
    heard = listen(rules(), timeline((1, 70), (0, 1)))
    assert sum(len(utterance.samples) for utterance in heard) / RATE == pytest.approx(70.1, abs=0.1)
    assert max(len(utterance.samples) for utterance in heard) <= 28 * RATE
    ends = [utterance.start_s + len(utterance.samples) / RATE for utterance in heard]
    assert [utterance.start_s for utterance in heard[1:]] == ends[:-1]


def test_a_recording_without_speech_is_one_empty_utterance_that_says_how_long_it_is():
    (utterance,) = listen(rules(), timeline((0, 4)))
    assert (len(utterance.samples), utterance.last, utterance.clip_s) == (0, True, 4.0)


def test_an_empty_recording_ends_like_any_other():
    (utterance,) = listen(rules(), np.zeros(0, np.int16))
    assert (len(utterance.samples), utterance.last, utterance.clip_s) == (0, True, 0.0)


def test_a_request_without_recordings_says_nothing():
    stage, mine = rules(), request()
    assert stage.finish(CTX, mine) == []


def test_each_recording_begins_anew_and_ends_when_the_next_one_comes():
    clip = timeline((0, 1), (1, 2), (0, 0.3))
    mine = request()
    heard = listen(rules(), clip, timeline((0, 1)), clip, wanted=mine)
    assert [(u.clip, u.last, u.clip_s) for u in heard] == [(0, True, 3.3), (1, True, 1.0), (2, True, 3.3)]
    assert np.array_equal(heard[0].samples, heard[2].samples)
    assert mine.report["audio_s"] == pytest.approx(7.6)
    assert mine.report["speech_s"] == pytest.approx(4.6, abs=0.1)
    assert mine.report["utterances"] == 2


@pytest.mark.parametrize("seed", range(12))
def test_the_same_samples_give_the_same_utterances_however_they_are_cut(seed):
    random = np.random.default_rng(seed)
    stretches = [(at % 2, length) for at, length in enumerate(random.exponential(1.0 + seed % 3, 30))]
    samples = timeline(*stretches, (1, 35) if seed % 4 == 0 else (0, 1))
    stage = rules(joined_s=8.0)
    whole = listen(stage, samples)
    assert len(whole) > 2
    cuts = np.sort(random.integers(0, len(samples), 2 + seed * 20))
    assert same(listen(stage, samples, cuts=cuts), whole)


def test_floats_are_heard_like_the_integers_they_stand_for():
    samples = timeline((0, 1), (1, 2), (0, 1))
    floats = samples.astype(np.float32) / 32768.0
    assert same(listen(rules(), floats), listen(rules(), samples))
    loud = np.asarray([np.nan, 2.0, -2.0, np.inf] * 8000, np.float32)
    (utterance,) = listen(rules(), loud)
    assert set(utterance.samples.tolist()) == {0, 32767, -32768}


def test_company_in_a_step_changes_nothing():
    stage, samples = rules(), timeline((0, 1), (1, 2), (0, 2), (1, 1))
    alone = listen(stage, samples)
    both = [request(1), request(2)]
    heard = stage.step(
        CTX,
        [
            Chunk(both[0], "audio", Pcm(samples, RATE), 0),
            Chunk(both[1], "audio", Pcm(timeline((1, 5)), RATE), 0),
        ],
    )
    heard += stage.finish(CTX, both[0])
    assert same([emission.payload for emission in heard if emission.request is both[0]], alone)


def test_samples_that_no_utterance_can_hold_are_let_go():
    stage, mine = rules(), request()
    for seq in range(40):
        stage.step(CTX, [Chunk(mine, "audio", Pcm(timeline((0, 15)), RATE), seq)])
        assert len(mine.state.recording._kept) < RATE
    for seq in range(40, 80):
        stage.step(CTX, [Chunk(mine, "audio", Pcm(timeline((1, 15)), RATE), seq)])
        assert len(mine.state.recording._kept) <= (28 + 15) * RATE


@pytest.mark.parametrize(
    ("pcm", "match"),
    [
        (Pcm(np.zeros(10, np.int16), 24_000), "16000 samples"),
        (Pcm(np.zeros(10, np.float64), RATE), "int16 or float32"),
        (Pcm(np.zeros((2, 5), np.int16), RATE), "one row"),
    ],
)
def test_recordings_of_another_kind_are_refused_and_change_nothing(pcm, match):
    mine = request()
    with pytest.raises(StageFailed, match=match):
        rules().step(CTX, [Chunk(mine, "audio", pcm, 0)])
    assert mine.state is None


def test_a_recording_that_comes_again_is_refused():
    stage, mine = rules(), request()
    stage.step(CTX, [Chunk(mine, "audio", Pcm(timeline((1, 1)), RATE, 3), 0)])
    with pytest.raises(StageFailed, match="recording 2 came after recording 3"):
        stage.step(CTX, [Chunk(mine, "audio", Pcm(timeline((1, 1)), RATE, 2), 1)])


@pytest.mark.parametrize("options", [{"threshold": 1.0}, {"pad_s": -1.0}, {"joined_s": 31.0}, {"speech_max_s": 0.0}])
def test_options_that_make_no_sense_are_refused_at_start(options):
    with pytest.raises(ConfigError):
        VoiceActivity(VoiceActivityOptions(**options)).start(CTX)


def test_real_speech_is_found_between_silence_and_noise(real, speak, pause):
    question = speak("Could you tell me how to get to the nearest library?")
    noise = np.random.default_rng(1).normal(0, 200, 3 * RATE).astype(np.int16)
    utterance, end = listen(real, np.concatenate((noise, question, noise)))
    assert (len(end.samples), end.last) == (0, True)
    assert utterance.start_s == pytest.approx(2.85, abs=0.2)
    assert len(utterance.samples) / RATE == pytest.approx(len(question) / RATE + 0.3, abs=0.25)


@pytest.mark.parametrize("word", ["Yes.", "No.", "Hi.", "Stop!"])
def test_a_single_word_is_speech(real, speak, pause, word):
    (utterance,) = listen(real, np.concatenate((pause(0.5), speak(word), pause(0.5))))
    assert len(utterance.samples) >= 0.25 * RATE


def test_real_speech_gives_the_same_utterances_however_it_is_cut(real, speak, pause, said_sentences):
    parts = [part for at, text in enumerate(said_sentences) for part in (speak(text), pause(0.3 + at * 0.4))]
    samples = np.concatenate(parts)
    whole = listen(real, samples)
    assert len(whole) > 4
    for seed in range(3):
        cuts = np.sort(np.random.default_rng(seed).integers(0, len(samples), 30))
        assert same(listen(real, samples, cuts=cuts), whole)


def test_noise_and_tones_are_no_speech(real):
    random = np.random.default_rng(2)
    tone = 8000 * np.sin(np.arange(4 * RATE) * 0.2)
    for sound in (random.normal(0, 300, 4 * RATE), random.normal(0, 6000, 4 * RATE), tone):
        (utterance,) = listen(real, sound.astype(np.int16))
        assert len(utterance.samples) == 0
