"""What an operator may set about the gateway. Every default lives here, once."""

from __future__ import annotations

from msgspec import Struct

AUDIO_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
"""What `response_format` may be, in the order they are listed to clients."""


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    keys_file: str = ""
    """API keys, one a line; the file must be readable by its owner only. Empty: no key is asked for."""
    public_discovery: bool = False
    """Leave the lists of models and voices open when keys are set (some clients list them without credentials)."""
    public_metrics: bool = True
    """Leave `/metrics` open when keys are set."""
    cors_origins: tuple[str, ...] = ("*",)
    """Web origins that may call; `*` for all, empty for none. Credentials (cookies) are never allowed."""
    default_format: str = "mp3"
    pcm_rate: int = 24_000
    """Rate of raw pcm when the request names none: clients of the OpenAI API assume this one. 0: the model's own."""
    keepalive_s: float = 12.0
    """Silence on an event stream before a comment is sent."""
    stall_s: float = 30.0
    """A client that takes no byte for this long is closed."""
    json_bytes_max: int = 16 << 20
    upload_bytes_max: int = 10 << 20
    complete_bytes_max: int = 256 << 20
    """A whole answer (`stream: false`) that would be longer fails; ask for a stream instead."""
    instructions_chars_max: int = 4096
    encode_threads: int = 2
    voices_dir: str = ""
    """Where uploaded voices are kept. Empty: uploads are refused."""
    voices_max: int = 1000
