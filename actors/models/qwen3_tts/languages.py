"""The languages and speakers of a checkpoint, as a request may name them."""

from __future__ import annotations

from typing import Any

from omnirt.actors.models.qwen3_tts.config import Qwen3TtsConfig
from omnirt.errors import InvalidRequest

AUTO = "auto"
CHINESE = "chinese"
DIALECT = "dialect"
"""Dialects belong to speakers and are not asked for."""
ALIASES = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ko": "korean",
    "pt": "portuguese",
    "ru": "russian",
    "zh": "chinese",
    "cmn": "chinese",
    "mandarin": "chinese",
}
"""Codes of languages; what follows a code (`en-GB`, `zh_CN`) makes no difference."""


def languages(config: Qwen3TtsConfig) -> list[str]:
    """Names for clients, in the order of the checkpoint; `Auto` leaves the choice to the model."""
    return [name.capitalize() for name in (AUTO, *config.languages) if DIALECT not in name]


def voices(config: Qwen3TtsConfig) -> list[dict[str, Any]]:
    """The speakers of the checkpoint; `dialect` where one speaks it."""
    return [
        {"id": name, "name": name.replace("_", " ").title()}
        | ({"dialect": config.dialects[name]} if name in config.dialects else {})
        for name in config.speakers
    ]


def facts(config: Qwen3TtsConfig) -> dict[str, Any]:
    """What a checkpoint adds to the facts of its stage (see `Stage.facts`)."""
    codes = [code for code, name in ALIASES.items() if name in config.languages]
    said: dict[str, Any] = {"languages": languages(config) + codes, "task_types": [config.task]}
    if config.speakers and config.task == "custom_voice":
        said |= {"voices": voices(config), "default_voice": default_speaker(config)}
    return said | ({"cloning": True} if config.task == "base" else {})


def default_speaker(config: Qwen3TtsConfig) -> str:
    """The first one that speaks no dialect."""
    return next((name for name in config.speakers if name not in config.dialects), next(iter(config.speakers)))


def speaker_of(config: Qwen3TtsConfig, voice: str | None) -> str:
    """The speaker that a request names; case and the difference between space and underscore do not matter."""
    name = (voice or "default").strip().lower().replace(" ", "_")
    if name in config.speakers:
        return name
    if name == "default":
        return default_speaker(config)
    raise InvalidRequest(f"there is no voice {voice!r}; valid: {', '.join(config.speakers)}", param="voice")


def language_id(config: Qwen3TtsConfig, language: str | None, speaker: str | None = None) -> int | None:
    """The id of the language to be spoken; None lets the model choose. A speaker's dialect takes the place of Chinese,
    and of no choice."""
    name = language_name(config, language)
    if name in (CHINESE, AUTO):
        name = config.dialects.get(speaker or "", name)
    return None if name == AUTO else config.languages[name]


def language_name(config: Qwen3TtsConfig, language: str | None) -> str:
    """`auto`, or a name of `config.languages`. Raises InvalidRequest."""
    name = (language or AUTO).strip().lower()
    if name == AUTO or (name in config.languages and DIALECT not in name):
        return name
    code = ALIASES.get(name) or ALIASES.get(name.replace("_", "-").split("-")[0], "")
    if code in config.languages:
        return code
    valid = ", ".join(languages(config))
    raise InvalidRequest(f"{language!r} is no language of this checkpoint; valid: {valid}", param="language")
