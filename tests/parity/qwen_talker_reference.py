"""Greedy codes of the reference talker on tiny random checkpoints, as a file that test_qwen3_tts.py compares with.

    PYTHON tests/parity/qwen_talker_reference.py CHECKPOINTS GOLDEN

PYTHON: an interpreter with qwen-tts 0.1.1. CHECKPOINTS: a folder with the checkpoints of scripts/checkpoint, named
KIND-SIZE. Of each case the file has what was asked for, the codes, a fingerprint of the prompt's rows and of the lines
of text, and how far the likeliest code was from the next one at least (a small distance would be a coin toss).
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from qwen_tts import Qwen3TTSModel

FRAMES = 64
ENGLISH = "the quick brown fox jumps over the lazy dog, and nothing else happens!"
LONG = "hello world; this is 1 short text that is to be spoken in a calm voice. " * 2
CHINESE = "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002"
MARKED = "  le re\u0301nard isn't <here>\n\n and 'tis  <think> 3.14 \U0001f600 "
INSTRUCT = "speak like a friendly fox"
RECORDED = "one two three four"
CASES = [
    {"checkpoint": "custom_voice-tiny", "text": ENGLISH, "speaker": "Ryan", "language": "English"},
    {"checkpoint": "custom_voice-tiny", "text": ENGLISH, "speaker": "vivian", "non_streaming": False},
    {"checkpoint": "custom_voice-tiny", "text": CHINESE, "speaker": "eric", "language": "Chinese"},
    {"checkpoint": "custom_voice-tiny", "text": MARKED, "speaker": "dylan", "instruct": CHINESE},
    {"checkpoint": "custom_voice-tiny", "text": "a", "speaker": "sohee", "language": "german", "penalty": 1.4},
    {"checkpoint": "custom_voice-tiny_0b6", "text": LONG, "speaker": "aiden", "instruct": INSTRUCT},
    {"checkpoint": "custom_voice-tiny_0b6", "text": MARKED, "speaker": "uncle_fu", "non_streaming": False},
    {"checkpoint": "voice_design-tiny", "text": ENGLISH, "language": "french", "instruct": INSTRUCT},
    {"checkpoint": "voice_design-tiny", "text": LONG, "instruct": MARKED, "non_streaming": False},
    {"checkpoint": "base-tiny", "text": ENGLISH, "language": "English", "frames": 0},
    {"checkpoint": "base-tiny", "text": LONG, "frames": 0, "non_streaming": True},
    {"checkpoint": "base-tiny", "text": LONG, "language": "korean", "frames": 9, "ref_text": RECORDED},
    {"checkpoint": "base-tiny", "text": CHINESE, "frames": 70, "ref_text": RECORDED},
    {"checkpoint": "base-tiny", "text": ENGLISH, "frames": 12, "ref_text": MARKED, "non_streaming": True},
    {"checkpoint": "base-tiny_0b6", "text": ENGLISH, "frames": 15, "ref_text": ENGLISH, "penalty": 1.0},
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("golden", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    models, cases = {}, []
    for at, case in enumerate(CASES):
        folder = chosen.checkpoints / case["checkpoint"]
        if folder not in models:
            models[folder] = Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="sdpa")
        cases.append(run(models[folder], dict(case), at))
    names = sorted({case["checkpoint"] for case in CASES})
    hashes = {name: hashlib.sha256((chosen.checkpoints / name / "model.safetensors").read_bytes()) for name in names}
    golden = {"checkpoints": {name: found.hexdigest() for name, found in hashes.items()}, "cases": cases}
    chosen.golden.write_text(
        json.dumps(golden, separators=(",", ":")).replace('{"checkpoint"', '\n{"checkpoint"') + "\n"
    )


def run(model, case, at):
    talker = model.model.talker
    voice = recording(case, at, talker.config) if "frames" in case else None
    seen = {}
    watch(talker, seen)
    tokens = model._tokenize_texts
    ignored = model.model.tts_model_type == "custom_voice" and model.model.tts_model_size == "0b6"
    instruct = None if ignored else case.get("instruct")
    default = model.model.tts_model_type != "base"
    found, _ = model.model.generate(
        input_ids=tokens([model._build_assistant_text(case["text"])]),
        instruct_ids=[tokens([model._build_instruct_text(instruct)])[0] if instruct else None],
        ref_ids=[tokens([model._build_ref_text(case["ref_text"])])[0] if case.get("ref_text") else None],
        voice_clone_prompt=voice,
        languages=[case.get("language", "auto")],
        speakers=[case.get("speaker")],
        non_streaming_mode=case.get("non_streaming", default),
        max_new_tokens=FRAMES + 1,
        do_sample=False,
        subtalker_dosample=False,
        repetition_penalty=case.get("penalty", 1.05),
    )
    talker.generate, talker.code_predictor.generate = seen["own"]
    if voice is not None:
        case["embedding"] = [round(float(x), 4) for x in voice["ref_spk_embedding"][0]]
        case["ref_codes"] = voice["ref_code"][0].tolist() if voice["ref_code"][0] is not None else []
    codes = found[0].tolist()
    kinds = len({code[0] for code in codes})
    sys.stderr.write(f"{at} {case['checkpoint']}: {len(codes)} frames, {kinds} first codes, margin {seen['margin']}\n")
    return case | {"rows": seen["rows"], "lines": seen["lines"], "margin": seen["margin"], "codes": codes}


def recording(case, at, config):
    rng = np.random.default_rng(at)
    embedding = torch.tensor(rng.standard_normal(config.hidden_size).round(4).astype(np.float32))
    size = (case["frames"], config.num_code_groups)
    codes = torch.tensor(rng.integers(0, config.code_predictor_config.vocab_size, size))
    with_text = case["frames"] > 0
    return {
        "ref_code": [codes if with_text else None],
        "ref_spk_embedding": [embedding],
        "x_vector_only_mode": [not with_text],
        "icl_mode": [with_text],
    }


def watch(talker, seen):
    """Notes what the talker is given, and the smallest distance between the best two codes of every choice."""
    outer, inner = talker.generate, talker.code_predictor.generate
    seen.update(own=(outer, inner), margin=float("inf"))

    def note(scores):
        for logits in scores:
            best = logits[0].topk(2).values
            seen["margin"] = min(seen["margin"], round(float(best[0] - best[1]), 6))

    def watched_outer(**given):
        seen["rows"] = fingerprint(given["inputs_embeds"][0])
        lines = given["trailing_text_hidden"][0]
        pad = given["tts_pad_embed"].view(1, -1)
        ends = torch.equal(lines[-1:], pad)
        seen["lines"] = fingerprint(lines if ends else torch.cat([lines, pad]))
        result = outer(**given, output_scores=True)
        note(result.scores)
        return result

    def watched_inner(**given):
        result = inner(**given, output_scores=True)
        note(result.scores)
        return result

    talker.generate, talker.code_predictor.generate = watched_outer, watched_inner


def fingerprint(rows):
    """One number a row."""
    weights = torch.cos(torch.arange(rows.shape[1], dtype=torch.float64))
    return [round(float(x), 4) for x in rows.double() @ weights]


if __name__ == "__main__":
    main()
