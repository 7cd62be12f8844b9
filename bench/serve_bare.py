"""The language model without a server: its engine stepped in a loop, as a process of its own.

    python bench/serve_bare.py PIPELINE.toml    rounds in, their figures out: JSON lines

Askers are as in the closed loop of the server's side: each thinks for a while after an answer, then its next question
is due, whatever the engine is doing. A question joins at the next step after it is due and its first token counts from
then, so waiting for a step that runs is in both sides' figures. Prompts are made before the round begins; nothing is
turned back into text.
"""

from __future__ import annotations

import gc
import heapq
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from serve_round import Question, Round

from omnirt.actors.engines.sampling import Sampling
from omnirt.actors.stages.thinker import Thinker, ThinkerOptions
from omnirt.actors.text.conversation import Conversation
from omnirt.runtime.stage import Context
from omnirt.wire.payload import Message, Part


class Under(NamedTuple):
    """A question under way. `times`: due, first token."""

    sequence: Any
    times: list[int]


class Bare:
    def __init__(self, stage: dict[str, Any], threads: int) -> None:
        thinker = Thinker(msgspec.convert(stage.get("options", {}), ThinkerOptions))
        thinker.start(Context(stage["name"], "cpu", 0, threads, lambda _: None))
        # The stage's own engine and template, so that every setting is the same; the stage itself takes no part.
        self._engine, self._tokenizer, self._template = thinker._engine, thinker._tokenizer, thinker._template
        self._system = thinker.options.system

    def prompt(self, text: str) -> list[int]:
        conversation = Conversation()
        conversation.add_messages((Message("user", (Part(text),)),))
        assert self._template is not None, "a model that chats"
        return self._template.encode(conversation.rendered(self._system), self._tokenizer)

    def run(self, wanted: Round) -> dict[str, Any]:
        prompts = [self.prompt(question.text) for question in wanted.questions]
        waiting = [(0, number) for number in range(min(wanted.askers, len(prompts)))]
        following = iter(range(len(waiting), len(prompts)))
        began_ns, used = time.monotonic_ns(), time.process_time()
        waiting = [(began_ns + wanted.questions[number].think_ns, number) for _, number in waiting]
        heapq.heapify(waiting)
        live: dict[int, Under] = {}
        firsts: list[int] = []
        tokens = 0
        while waiting or live:
            self._join(wanted, prompts, waiting, live)
            for produced in self._engine.step([under.sequence for under in live.values()]):
                key = id(produced.sequence)
                under, at_ns = live[key], time.monotonic_ns()
                if len(under.times) == 1:
                    under.times.append(at_ns)
                if produced.finish_reason:
                    firsts.append(under.times[1] - under.times[0])
                    tokens += produced.sequence.completion_tokens
                    self._engine.remove(live.pop(key).sequence)
                    number = next(following, None)
                    if number is not None:
                        heapq.heappush(waiting, (at_ns + wanted.questions[number].think_ns, number))
        seconds = (time.monotonic_ns() - began_ns) / 1e9
        return {
            "ttft_ns": firsts,
            "tokens": tokens,
            "prompt_tokens": sum(map(len, prompts)),
            "seconds": seconds,
            "used_s": {"engine": time.process_time() - used},
        }

    def _join(
        self, wanted: Round, prompts: list[list[int]], waiting: list[tuple[int, int]], live: dict[int, Under]
    ) -> None:
        """Whatever is due takes part in the next step; with nothing to do, sleep until something is due."""
        if not live:
            time.sleep(max(0, waiting[0][0] - time.monotonic_ns()) / 1e9)
        while waiting and waiting[0][0] <= time.monotonic_ns():
            due_ns, number = heapq.heappop(waiting)
            sequence = self._engine.add(prompts[number], sampling_of(wanted, wanted.questions[number]))
            live[id(sequence)] = Under(sequence, [due_ns])


def sampling_of(wanted: Round, question: Question) -> Sampling:
    return Sampling(
        temperature=wanted.temperature,
        repetition_penalty=wanted.repetition_penalty,
        seed=question.seed,
        max_tokens=question.tokens,
        min_tokens=question.tokens,
        ignore_eos=True,
    )


def main() -> None:
    pipeline = tomllib.loads(Path(sys.argv[1]).read_text())
    stage = next(stage for stage in pipeline["stage"] if stage["actor"].endswith(":Thinker"))
    threads = pipeline.get("node", {}).get(stage.get("node", stage["name"]), {}).get("threads", 1)
    bare = Bare(stage, threads)
    gc.collect()
    gc.freeze()  # as a node does
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(bare.run(msgspec.json.decode(line, type=Round))), flush=True)


if __name__ == "__main__":
    main()
