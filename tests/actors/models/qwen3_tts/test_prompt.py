import msgspec
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.prompt import (
    Speech,
    describe,
    embed,
    embed_lines,
    frame_rows,
    line_ids,
    tokens_needed,
)
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.models.qwen3_tts.weights import load
from omnirt.errors import InvalidRequest

torch = pytest.importorskip("torch")

ROLE = [1, 2, 3]
TEXT = [10, 11, 12]
PAD, BOS, EOS = -1, -2, -3
"""Put in place of the ids of the text vocabulary below."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        kind: random_checkpoint.write(tmp_path_factory.mktemp(kind), kind, "tiny")
        for kind in ("custom_voice", "voice_design", "base")
    }


@pytest.fixture(scope="module")
def configs(folders):
    return {kind: Qwen3TtsConfig.read(folder) for kind, folder in folders.items()}


def voice_of(frames, width=64):
    return SpeakerVoice(np.ones(width, np.float32), np.full((frames, 4), 7, np.int32))


def described(config, **speech):
    """Rows of text, of codec (names where there are), lines."""
    prompt = describe(config, ROLE, Speech(**{"text": TEXT} | speech))
    ids = {config.text.pad: PAD, config.text.bos: BOS, config.text.eos: EOS}
    names = {number: name for name, number in msgspec.structs.asdict(config.codec).items()}
    names |= {number: name for name, number in {**config.languages, **config.speakers}.items()}
    codec = [names.get(code, code) for code in prompt.codec]
    if prompt.voice_row >= 0:
        assert codec[prompt.voice_row] == "pad"
        codec[prompt.voice_row] = "voice"
    return [ids.get(i, i) for i in prompt.text], codec, [ids.get(i, i) for i in prompt.lines]


def test_a_named_speaker_has_all_text_before_its_first_frame(configs):
    text, codec, lines = described(configs["custom_voice"], speaker="Vivian", language="en")
    assert text == [*ROLE, PAD, PAD, PAD, PAD, PAD, BOS, *TEXT, EOS, PAD]
    prefix = ["think", "think_bos", "english", "think_eos", "vivian", "pad"]
    assert codec == [*prefix, "pad", "pad", "pad", "pad", "bos"]
    assert lines == [PAD]


def test_streamed_text_is_a_line_a_frame(configs):
    text, codec, lines = described(configs["custom_voice"], speaker="vivian", non_streaming=False)
    assert text == [*ROLE, PAD, PAD, PAD, PAD, BOS, 10]
    assert codec == ["nothink", "think_bos", "think_eos", "vivian", "pad", "bos"]
    assert lines == [11, 12, EOS, PAD]


def test_instructions_stand_before_everything(configs):
    text, codec, _ = described(configs["custom_voice"], instruct=[20, 21])
    assert text[:6] == [20, 21, *ROLE, PAD]
    assert len(text) - len(codec) == 5
    small = msgspec.structs.replace(configs["custom_voice"], size="0b6")
    assert described(small, instruct=[20, 21]) == described(small)


def test_a_dialect_takes_the_place_of_chinese(configs):
    for language in ("chinese", None):
        codec = described(configs["custom_voice"], speaker="eric", language=language)[1]
        assert codec[:4] == ["think", "think_bos", "sichuan_dialect", "think_eos"]


def test_a_designed_voice_has_no_speaker(configs):
    text, codec, lines = described(configs["voice_design"], instruct=[20])
    assert text == [20, *ROLE, PAD, PAD, PAD, BOS, *TEXT, EOS, PAD]
    assert codec == ["nothink", "think_bos", "think_eos", *["pad"] * 5, "bos"]
    assert lines == [PAD]


def test_a_cloned_voice_is_an_embedding(configs):
    text, codec, lines = described(configs["base"], voice=voice_of(0), language="German")
    assert text == [*ROLE, PAD, PAD, PAD, PAD, PAD, BOS, 10]
    assert codec == ["think", "think_bos", "german", "think_eos", "voice", "pad", "bos"]
    assert lines == [11, 12, EOS, PAD]


def test_a_recording_is_continued_with_its_text_beside_its_frames(configs):
    control = [*ROLE, PAD, PAD, PAD, PAD, BOS]
    head = ["nothink", "think_bos", "think_eos", "voice", "pad"]
    text, codec, lines = described(configs["base"], voice=voice_of(2), ref_text=[30, 31])
    assert (text, codec) == ([*control, 30, 31, 10], [*head, "bos", "pad", "pad"])
    assert lines == [11, 12, EOS, PAD]
    text, codec, lines = described(configs["base"], voice=voice_of(7), ref_text=[30, 31])
    assert (text, codec) == ([*control, 30, 31, *TEXT, EOS, PAD, PAD], [*head, "bos", *["pad"] * 7])
    assert lines == [PAD]
    text, codec, lines = described(configs["base"], voice=voice_of(5), ref_text=[30, 31])
    assert (text, lines) == ([*control, 30, 31, *TEXT, EOS], [PAD])


def test_a_recording_may_be_read_after_all_text(configs):
    text, codec, lines = described(configs["base"], voice=voice_of(2), ref_text=[30], non_streaming=True)
    assert text == [*ROLE, PAD, PAD, PAD, PAD, BOS, 30, *TEXT, EOS, PAD, PAD, PAD]
    assert codec[5:] == [*["pad"] * 5, "bos", "pad", "pad"]
    assert lines == [PAD]


def test_text_that_is_open_has_no_end(configs):
    assert described(configs["custom_voice"], text=[10], is_open=True)[2] == []
    assert described(configs["base"], voice=voice_of(0), is_open=True)[2] == [11, 12]
    text, _, lines = described(configs["base"], voice=voice_of(3), ref_text=[30], is_open=True)
    assert (text[-4:], lines) == ([30, 10, 11, 12], [])
    config = configs["base"]
    assert line_ids(config, [5, 6], is_last=False) == [5, 6]
    assert line_ids(config, [5], is_last=True) == [5, config.text.eos, config.text.pad]


def test_an_open_text_has_to_reach_over_the_recording(configs):
    assert tokens_needed(None, []) == tokens_needed(voice_of(0), [30]) == 1
    assert tokens_needed(voice_of(3), [30]) == 3
    assert tokens_needed(voice_of(3), [30] * 9) == 1
    with pytest.raises(InvalidRequest, match="no text"):
        described(configs["base"], voice=voice_of(4), ref_text=[30], is_open=True)


@pytest.mark.parametrize(
    ("kind", "speech", "param"),
    [
        ("custom_voice", {"speaker": "alloy"}, "voice"),
        ("custom_voice", {"language": "klingon"}, "language"),
        ("custom_voice", {"voice": voice_of(0)}, "voice"),
        ("custom_voice", {"text": []}, "input"),
        ("voice_design", {}, "instructions"),
        ("voice_design", {"instruct": [1], "speaker": "vivian"}, "voice"),
        ("base", {}, "voice"),
        ("base", {"voice": voice_of(2)}, "ref_text"),
        ("base", {"voice": voice_of(0, width=32)}, "voice"),
        ("base", {"voice": SpeakerVoice(np.ones(64, np.float32), np.full((2, 4), 64)), "ref_text": [1]}, "voice"),
        ("base", {"voice": SpeakerVoice(np.ones(64, np.float32), np.ones((2, 5), int)), "ref_text": [1]}, "voice"),
    ],
)
def test_what_a_checkpoint_cannot_do_is_refused_by_its_name(configs, kind, speech, param):
    with pytest.raises(InvalidRequest) as caught:
        described(configs[kind], **speech)
    assert caught.value.param == param


def test_rows_are_the_sums_of_both_tracks(folders, configs):
    config = configs["base"]
    frame, text = load(folders["base"], config, "cpu", torch.float32)
    voice = SpeakerVoice(np.linspace(-1, 1, 64, dtype=np.float32), np.arange(12, dtype=np.int32).reshape(3, 4))
    prompt = describe(config, ROLE, Speech(text=TEXT, voice=voice, ref_text=[30]))
    ((rows, lines),) = embed([prompt], frame, text)
    of_text = embed_lines(prompt.text, text)
    assert rows.shape == (len(prompt), 64)
    assert torch.equal(rows[:3], of_text[:3])
    at = 3 + prompt.voice_row
    assert torch.allclose(rows[at], of_text[at] + torch.from_numpy(voice.embedding))
    assert torch.allclose(rows[-4], of_text[-4] + frame.embed[config.codec.bos])
    last = frame.embed[8] + frame.embeds[0, 9] + frame.embeds[1, 10] + frame.embeds[2, 11]
    assert torch.allclose(rows[-1], of_text[-1] + last, atol=1e-5)
    assert torch.allclose(frame_rows(torch.from_numpy(voice.codes).long(), frame)[2], last, atol=1e-5)
    assert torch.equal(lines, embed_lines([config.text.eos, config.text.pad], text))


def test_prompts_that_are_made_together_are_those_of_each_alone(folders, configs):
    config = configs["base"]
    frame, text = load(folders["base"], config, "cpu", torch.float32)
    voices = [SpeakerVoice(np.full(64, n, np.float32), np.full((n, 4), n, np.int32)) for n in (0, 1, 3)]
    prompts = [
        describe(config, ROLE, Speech(text=TEXT[n:], voice=voice, ref_text=[30] if len(voice.codes) else ()))
        for n, voice in enumerate(voices)
    ]
    together = embed(prompts, frame, text)
    for prompt, (rows, lines) in zip(prompts, together, strict=True):
        ((own_rows, own_lines),) = embed([prompt], frame, text)
        assert torch.equal(rows, own_rows)
        assert torch.equal(lines, own_lines)
        assert (len(rows), len(lines)) == (len(prompt), len(prompt.lines))
