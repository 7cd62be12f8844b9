"""How the tokens of an answer are to be chosen, and when it ends: the fields that chat and completions share.

What no stage acts on is refused where ignoring it would silently give another answer than asked for, unless its value
asks for nothing (a penalty of 0); what only tunes the choice (`temperature`, `top_p`) is then ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, cast

from omnirt.gateway.errors import invalid
from omnirt.gateway.fields import INT64_MAX, Fields, flag, number, unsupported, whole

TOKENS_MAX = 1 << 20
STOPS_MAX = 16
STOP_CHARS_MAX = 256
CHOICES_MAX = 8
TOP_LOGPROBS_MAX = 20

NUMBERS = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
}
SAMPLED = frozenset({*NUMBERS, "top_k", "min_tokens", "max_tokens", "ignore_eos", "stop"})
"""Names that `sampling` gives."""
WISHES = frozenset({"temperature", "top_p"})
NOTHING: dict[str, tuple[object, ...]] = {
    "min_p": (0.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "top_k": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop": ([],),
}
"""Values that change nothing."""
CHANGES_THE_ANSWER = (
    "logit_bias", "bad_words", "best_of", "use_beam_search", "stop_token_ids", "allowed_token_ids", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "logits_processors", "prompt_embeds",
    "truncate_prompt_tokens", "prompt_logprobs",
)  # fmt: skip
"""Further fields that clients know from other servers; refused unless a stage says it honours them."""


def sampling(fields: Fields, known: Collection[str]) -> dict[str, Any]:
    """Parameters for the stages, by name; `known` are those that they act on. Raises a 400.

    Log probabilities are asked for differently by chat and completions, so they are not here."""
    given: dict[str, Any] = {name: number(fields, name, low, high) for name, (low, high) in NUMBERS.items()}
    top_k = whole(fields, "top_k", -1, TOKENS_MAX)
    given["top_k"] = 0 if top_k == -1 else top_k  # two ways to say "all"
    given["min_tokens"] = whole(fields, "min_tokens", 0, TOKENS_MAX)
    given["max_tokens"] = _tokens(fields)
    given["ignore_eos"] = flag(fields, "ignore_eos")
    given["stop"] = _stop(fields)
    params = {name: value for name, value in given.items() if value is not None and _counts(name, value, known)}
    for name in CHANGES_THE_ANSWER:
        if value := fields.get(name):
            if name not in known:
                raise unsupported(name)
            params[name] = value
    return params


def choices_of(fields: Fields) -> int:
    return whole(fields, "n", 1, CHOICES_MAX) or 1


def nth_seed(seed: int | None, index: int) -> int | None:
    """The seed of the answer at `index`: the first has the request's own, so that it is the answer of n = 1."""
    if seed is None or index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & INT64_MAX


def wants_usage(fields: Fields) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise invalid("stream_options must be an object.", "stream_options")
    return bool(flag(cast("Fields", options), "include_usage", "stream_options."))


def _counts(name: str, value: object, known: Collection[str]) -> bool:
    """Whether the stages get it. Raises where they would not and should."""
    if name in known:
        return True
    if name in WISHES or value in NOTHING.get(name, ()):
        return False
    raise unsupported(name)


def _tokens(fields: Fields) -> int | None:
    newer = whole(fields, "max_completion_tokens", 1, TOKENS_MAX)
    older = whole(fields, "max_tokens", 1, TOKENS_MAX)
    return older if newer is None else newer


def _stop(fields: Fields) -> list[str] | None:
    value = fields.get("stop")
    if value is None:
        return None
    stops: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    if len(stops) > STOPS_MAX:
        raise invalid(f"stop has {len(stops)} entries; the limit is {STOPS_MAX}.", "stop")
    for index, stop in enumerate(stops):
        param = f"stop[{index}]" if isinstance(value, list) else "stop"
        if not isinstance(stop, str) or not stop:
            raise invalid(f"{param} must be a string that is not empty.", param)
        if len(stop) > STOP_CHARS_MAX:
            raise invalid(f"{param} has {len(stop)} characters; the limit is {STOP_CHARS_MAX}.", param)
    return cast("list[str]", stops)
