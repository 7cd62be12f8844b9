"""A checkpoint's chat template: a conversation as the prompt that the model was trained on.

The template comes with the weights, so it runs in jinja's immutable sandbox. It sees messages as dicts of strings; what
a user wrote is guarded (see `tokenizer`), so that only the template itself can put special tokens into a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omnirt.actors.text.tokenizer import Tokenizer
from omnirt.errors import ConfigError, InvalidRequest

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        """`tokens`: the special tokens that a template may name, `bos_token` and so on. Raises ConfigError."""
        import jinja2
        import jinja2.sandbox

        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(f"the chat template cannot be read: {error}") from error
        self._tokens = dict(tokens)

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate | None:
        """None when the checkpoint has none: a model that was not trained to chat."""
        config = _read(folder / "tokenizer_config.json")
        alone = folder / "chat_template.jinja"
        source = alone.read_text(encoding="utf-8") if alone.is_file() else _source(config.get("chat_template"))
        source = source or _source(_read(folder / "chat_template.json").get("chat_template"))
        tokens = {name: _content(config[name]) for name in _NAMED if config.get(name)}
        return cls(source, tokens) if source else None

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt, up to where the assistant's answer begins. Raises InvalidRequest when the template refuses."""
        import jinja2

        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._tokens)
        except jinja2.TemplateError as error:
            raise InvalidRequest(f"this model takes no such conversation: {error}", param="messages") from error

    def encode(self, messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer, tokens_max: int = 0) -> list[int]:
        """Token ids of the prompt, with nothing special in it but what the template put there. `tokens_max`: as for
        the tokenizer."""
        values, guard = tokenizer.guard([value for message in messages for value in message.values()])
        rest = iter(values)
        prompt = self.render([{name: next(rest) for name in each} for each in messages])
        return tokenizer.encode_guarded(prompt, guard, tokens_max)


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Without the escapes for web pages that jinja's own one makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _source(template: str | list[dict[str, str]] | None) -> str:
    """Some checkpoints have several, by name."""
    if isinstance(template, list):
        return next((entry["template"] for entry in template if entry["name"] == "default"), "")
    return template or ""


def _content(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
