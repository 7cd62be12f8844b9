"""Our Qwen3-TTS talker beside the reference: greedy codes of every kind of prompt, on tiny random checkpoints.

What the reference said is in qwen3_tts_greedy.json, made by qwen_talker_reference.py; with --soak it is asked again, in
an environment that is made for it.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from omnirt.actors.models.qwen3_tts import random_checkpoint
from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.actors.models.qwen3_tts.prompt import Speech, describe, embed, embed_lines, line_ids, tokens_needed
from omnirt.actors.models.qwen3_tts.tokens import PromptTokens
from omnirt.actors.models.qwen3_tts.voice import SpeakerVoice
from omnirt.actors.models.qwen3_tts.weights import load

torch = pytest.importorskip("torch")

from omnirt.actors.engines.frame.engine import FrameEngine, FrameSampling  # noqa: E402
from omnirt.kernels.frame_layout import FrameRows  # noqa: E402
from omnirt.kernels.frame_reference import PlainStep  # noqa: E402

GOLDEN = json.loads(Path(__file__).with_name("qwen3_tts_greedy.json").read_text())
CASES = GOLDEN["cases"]
FRAMES = 64
REFERENCE = Path(__file__).with_name("qwen_talker_reference.py")
PACKAGES = """
qwen-tts==0.1.1 transformers==4.57.3 tokenizers>=0.22,<0.23.1 huggingface_hub<1 torchaudio==2.11.1 accelerate einops sox
onnxruntime flatbuffers protobuf librosa soundfile cffi pycparser soxr lazy_loader joblib cloudpickle decorator pooch
platformdirs audioread scikit-learn narwhals scipy threadpoolctl msgpack
"""
"""Over those of this environment, which has torch."""
MARGIN = 1e-3
"""Between the best two logits of every choice: what float32 rounds is a hundredth of it."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """By name: config, tokens, weights of the frame and of text."""
    made = {}

    def of(name):
        if name not in made:
            kind, size = name.split("-")
            folder = random_checkpoint.write(tmp_path_factory.mktemp(name), kind, size)
            found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
            assert found == GOLDEN["checkpoints"][name], "the checkpoint is not the one the reference was given"
            config = Qwen3TtsConfig.read(folder)
            made[name] = config, PromptTokens.load(folder, config), *load(folder, config, "cpu", torch.float32)
        return made[name]

    return of


def speech_of(case, tokens):
    voice = None
    if "frames" in case:
        codes = np.array(case["ref_codes"], np.int32).reshape(-1, len(case["codes"][0]))
        voice = SpeakerVoice(np.array(case["embedding"], np.float32), codes)
    return Speech(
        text=tokens.text(case["text"]),
        language=case.get("language"),
        speaker=case.get("speaker"),
        instruct=tokens.instruct(case.get("instruct", "")),
        voice=voice,
        ref_text=tokens.text(case["ref_text"]) if "ref_text" in case else (),
        non_streaming=case.get("non_streaming"),
    )


def prompt_of(case, model):
    config, tokens, frame, text = model
    return embed([describe(config, tokens.role, speech_of(case, tokens))], frame, text)[0]


def fingerprint(rows):
    return (rows.double() @ torch.cos(torch.arange(rows.shape[1], dtype=torch.float64))).tolist()


def name_of(case):
    wishes = [f"{key}={case[key]}" for key in ("frames", "language", "speaker", "non_streaming") if key in case]
    return f"{case['checkpoint']}, {' '.join(wishes)}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_prompt_and_the_lines_of_text_are_those_of_the_reference(case, model):
    rows, lines = prompt_of(case, model(case["checkpoint"]))
    assert fingerprint(rows) == pytest.approx(case["rows"], abs=2e-4)
    assert fingerprint(lines) == pytest.approx(case["lines"], abs=2e-4)


def test_no_choice_of_the_reference_was_close():
    assert min(case["margin"] for case in CASES) > MARGIN
    assert sum(len(case["codes"]) < FRAMES for case in CASES) >= 3, "some end by themselves"
    assert all(len({codes[0] for codes in case["codes"]}) > 8 for case in CASES), "they vary"


@pytest.mark.parametrize("name", GOLDEN["checkpoints"])
def test_greedy_codes_are_those_of_the_reference(name, model):
    cases = [case for case in CASES if case["checkpoint"] == name]
    assert spoken(cases, model) == [case["codes"] for case in cases]


@pytest.mark.parametrize("case", [CASES[4], CASES[9]], ids=name_of)
def test_greedy_codes_alone_are_those_of_the_reference(case, model):
    assert spoken([case], model) == [case["codes"]]


@pytest.mark.parametrize("case", [CASES[6], CASES[11]], ids=name_of)
def test_text_that_comes_while_it_is_spoken_gives_the_same_codes(case, model):
    config, tokens, frame, text = model(case["checkpoint"])
    engine = engine_of(case, model, 1)
    incoming, speech = tokens.incoming(), speech_of(case, tokens)
    pieces = [case["text"][at : at + 3] for at in range(0, len(case["text"]), 3)]
    needed, known, sequence, codes, asked = tokens_needed(speech.voice, speech.ref_text), [], None, [], 0
    while sequence is None or not sequence.finish_reason:
        ids = incoming.push(pieces.pop(0)) if pieces else []
        last = not pieces and asked == 0
        asked += last
        ids += incoming.end() if last else []
        known += ids
        if sequence is None and len(known) >= needed:
            prompt = describe(config, tokens.role, msgspec.structs.replace(speech, text=known, is_open=True))
            ((rows, lines),) = embed([prompt], frame, text)
            sequence = engine.add(rows, sampling_of(case), lines, text_open=True)
            engine.extend(sequence, embed_lines(line_ids(config, [], is_last=last), text), last=last)
        elif sequence is not None and (ids or last):
            engine.extend(sequence, embed_lines(line_ids(config, ids, is_last=last), text), last=last)
        for produced in engine.step([sequence] if sequence is not None else []):
            codes += produced.codes.tolist()
    assert codes == case["codes"]


def test_the_reference_still_says_the_same(soak, tmp_path):
    if not soak:
        pytest.skip("installs the reference: with --soak")
    packages = tmp_path / "packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(packages),
        *PACKAGES.split(),
    ]
    subprocess.run(install, check=True, timeout=900)
    for library in (packages / "torchaudio" / "lib").glob("*.so"):
        library.unlink()  # made for another torch, and not used
    for name in GOLDEN["checkpoints"]:
        random_checkpoint.write(tmp_path / "checkpoints" / name, *name.split("-"))
    told = tmp_path / "told.json"
    command = [sys.executable, str(REFERENCE), str(tmp_path / "checkpoints"), str(told)]
    subprocess.run(command, check=True, timeout=600, env=os.environ | {"PYTHONPATH": str(packages)})
    assert [case["codes"] for case in json.loads(told.read_text())["cases"]] == [case["codes"] for case in CASES]


def spoken(cases, model):
    """The codes of these cases of one checkpoint, all at the same time."""
    engine = engine_of(cases[0], model, len(cases))
    sequences = []
    for case in cases:
        rows, lines = prompt_of(case, model(case["checkpoint"]))
        sequences.append(engine.add(rows, sampling_of(case), lines))
    codes = [[] for _ in cases]
    while not all(sequence.finish_reason for sequence in sequences):
        for produced in engine.step([sequence for sequence in sequences if not sequence.finish_reason]):
            codes[sequences.index(produced.sequence)] += produced.codes.tolist()
    return codes


def engine_of(case, model, rows):
    config, _, frame, _ = model(case["checkpoint"])
    state = FrameRows.make(config.shape, rows, 1 + 4 * rows, 4, 192, "cpu", torch.float32)
    state.suppressed[list(config.suppressed)] = -1e30
    return FrameEngine(PlainStep(config.shape, frame, state, 32, (rows,)))


def sampling_of(case):
    penalty = case.get("penalty", 1.05)
    return FrameSampling(temperature=0.0, inner_temperature=0.0, repetition_penalty=penalty, frames_max=FRAMES)
