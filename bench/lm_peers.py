"""One language-model engine in a process of its own: a job in on each line of standard input, its seconds out.

    python lm_peers.py omnirt|transformers|vllm FOLDER DTYPE THREADS ROWS
    {"prompts": [[id, ...], ...], "tokens": 64}  ->  RESULT 1.234

A job is done when every prompt has exactly so many greedy tokens. Imports are inside the engines: each has its own
environment, and only one of them has ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Generate = Callable[[list[list[int]], int], Any]
CONTEXT = 1024


def omnirt(folder: Path, dtype: str, threads: int, rows: int) -> Generate:
    from omnirt.actors.engines.language import LanguageEngine, Sampling

    engine = LanguageEngine.load(folder, dtype=dtype, rows_max=rows, context_max=CONTEXT, threads=threads)

    def generate(prompts: list[list[int]], tokens: int) -> None:
        sequences = [engine.add(prompt, Sampling(max_tokens=tokens, ignore_eos=True)) for prompt in prompts]
        while any(sequence.state != "over" for sequence in sequences):
            engine.step(sequences)
        assert all(sequence.completion_tokens == tokens for sequence in sequences)

    return generate


def transformers(folder: Path, dtype: str, threads: int, rows: int) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def generate(prompts: list[list[int]], tokens: int) -> None:
        ids = torch.tensor(prompts)  # of one length: nothing is padded
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
            )
        assert out.shape[1] == ids.shape[1] + tokens

    return generate


def vllm(folder: Path, dtype: str, threads: int, rows: int) -> Generate:
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(folder),
        dtype=dtype,
        max_model_len=CONTEXT,
        max_num_seqs=rows,
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )

    def generate(prompts: list[list[int]], tokens: int) -> None:
        wish = SamplingParams(temperature=0.0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True, detokenize=False)
        done = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], wish, use_tqdm=False)
        assert all(len(one.outputs[0].token_ids) == tokens for one in done)

    return generate


def main() -> None:
    name, folder, dtype, threads, rows = sys.argv[1:]
    made = {"omnirt": omnirt, "transformers": transformers, "vllm": vllm}[name]
    generate = made(Path(folder), dtype, int(threads), int(rows))
    print("RESULT ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        start = time.perf_counter()
        generate(job["prompts"], job["tokens"])
        print("RESULT", time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
