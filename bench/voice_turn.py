"""A spoken question to the first spoken answer, beside the parts one after the other, in turn in one run.

Each question is asked as a recording, with text and audio streamed back: the time from sending to the first audio that
is not empty (TTFP). Then its parts alone, through the same server, each to its very end: the transcription, the text
of the answer, the speech of that text. Their sum is what a turn takes when nothing overlaps; the goal is a p50 of the
first of at most 0.8 of the sum's.

    python bench/voice_turn.py [--questions 20] [--max-tokens 48] [--url URL] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import uvloop
from serve_ask import Recording, Settings, chat, prompts, speech, transcription
from serve_client import Client
from serve_figures import percentile, played
from serve_process import server
from serve_read import Record
from serve_voice import spoken

GOAL = 0.8
WARM = 2
PARTS = ("transcription", "text", "speech")


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--url", help="a server that runs; else one is started")
    parser.add_argument("--pipeline", default="voice")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    recordings = spoken(prompts(args.seed)[: args.questions + WARM])
    if args.url:
        turns = uvloop.run(measured(args, args.url, recordings))
    else:
        with server(args.pipeline) as started:
            turns = uvloop.run(measured(args, started.url, recordings))
    report(turns, recordings)
    if args.json:
        Path(args.json).write_text(json.dumps({"settings": vars(args), "turns": turns}, indent=1) + "\n")


async def measured(args: argparse.Namespace, url: str, recordings: list[Recording]) -> list[dict[str, Any]]:
    """Which of the two goes first changes from question to question."""
    client = Client(url)
    turns: list[dict[str, Any]] = []
    for number, recording in enumerate(recordings):
        turn: dict[str, Any] = {}
        for half in (whole, parts) if number % 2 else (parts, whole):
            turn |= await half(client, args, recording)
        turn["same"] = turn["answer"] == turn["turn_answer"]
        if number >= WARM:
            turns.append(turn)
    client.close()
    return turns


async def whole(client: Client, args: argparse.Namespace, recording: Recording) -> dict[str, Any]:
    settings = Settings("chat-spoken", max_tokens=args.max_tokens, temperature=0.0)
    record = _checked("the turn", await client.ask(chat(settings, recording, args.seed)))
    if not record.sound or not record.text_ns:
        sys.exit("the turn has no text or no audio")
    return {
        "ttft_ms": (record.text_ns[0] - record.began_ns) / 1e6,
        "ttfp_ms": (record.sound[0][0] - record.began_ns) / 1e6,
        "e2el_ms": _e2el_ms(record),
        "audio_s": record.received_s,
        "dry": played(record).underruns,
        "turn_answer": record.text,
    }


async def parts(client: Client, args: argparse.Namespace, recording: Recording) -> dict[str, Any]:
    settings = Settings("chat-text", max_tokens=args.max_tokens, temperature=0.0)
    heard = _checked("transcription", await client.ask(transcription(settings, recording)))
    said = _checked("text", await client.ask(chat(settings, heard.text, args.seed)))
    if not said.text.strip():
        sys.exit(f"there is no answer to {heard.text!r}")
    spoke = _checked("speech", await client.ask(speech(settings, said.text, args.seed)))
    times = {name: _e2el_ms(record) for name, record in zip(PARTS, (heard, said, spoke), strict=True)}
    return {**times, "sum_ms": sum(times.values()), "heard": heard.text, "answer": said.text}


def report(turns: list[dict[str, Any]], recordings: list[Recording]) -> None:
    def spread(name: str) -> str:
        return "".join(f"{percentile([turn[name] for turn in turns], percent):10.0f}" for percent in (50, 90, 99))

    length = percentile([recording.seconds for recording in recordings], 50)
    answered = percentile([turn["audio_s"] for turn in turns], 50)
    print(f"{len(turns)} spoken questions of {length:.1f} s, answers of {answered:.1f} s (p50); times in ms")
    print(f"{'':44}{'p50':>10}{'p90':>10}{'p99':>10}")
    print(f"{'question sent -> first audio (TTFP)':44}{spread('ttfp_ms')}")
    print(f"{'question sent -> first text (TTFT)':44}{spread('ttft_ms')}")
    print(f"{'question sent -> end of the answer (E2EL)':44}{spread('e2el_ms')}")
    for name in PARTS:
        print(f"{f'alone, whole: {name}':44}{spread(name)}")
    print(f"{'sum of the parts':44}{spread('sum_ms')}")
    ratio = percentile([turn["ttfp_ms"] for turn in turns], 50) / percentile([turn["sum_ms"] for turn in turns], 50)
    same = sum(turn["same"] for turn in turns)
    dry = sum(turn["dry"] > 0 for turn in turns)
    print(f"same answer both ways: {same} of {len(turns)}; answers whose player ran dry: {dry}")
    print(f"p50 TTFP / p50 sum = {ratio:.2f}   goal <= {GOAL}  {'met' if ratio <= GOAL else 'MISS'}")


def _checked(what: str, record: Record) -> Record:
    if record.code:
        sys.exit(f"{what} failed: {record.code}")
    return record


def _e2el_ms(record: Record) -> float:
    return (record.ended_ns - record.began_ns) / 1e6


if __name__ == "__main__":
    main()
