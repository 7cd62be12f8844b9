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
    """An uploaded voice."""
    recording_bytes_max: int = 512 << 20
    """A recording sent to be transcribed, as a form; it goes to disk, not to memory."""
    recording_json_bytes_max: int = 32 << 20
    """The same as base64 in JSON."""
    recording_s_max: float = 3600.0
    """Longest recording, decoded. An hour is 115 MB while its request runs."""
    recordings_s_max: float = 4 * 3600.0
    """All recordings held at once. What would be more is refused with 429."""
    uploads_dir: str = ""
    """Where recordings are while they are used. Empty: the system's directory for temporary files."""
    uploads_bytes_max: int = 4 << 30
    """All recordings on disk at once. What would be more is refused with 429."""
    uploads_json_bytes_max: int = 512 << 20
    """All bodies with recordings as JSON at once. What would be more is refused with 429."""
    reference_s_max: float = 60.0
    """Longest recording of a voice to copy; the pipeline may want less."""
    media_roots: tuple[str, ...] = ()
    """Directories that `file://` references may point into. Empty: such references are refused."""
    allow_private_media: bool = False
    """Fetch media also from private, loopback and link-local addresses."""
    media_bytes_max: int = 64 << 20
    """Media that a request refers to by URL."""
    media_fetch_s: float = 30.0
    """How long fetching it may take, redirects included."""
    messages_max: int = 1024
    """Messages of one chat."""
    chat_chars_max: int = 1 << 20
    """Characters of all its messages, or of all prompts of a completion."""
    chat_audio_s_max: float = 600.0
    """All recordings of one chat, decoded."""
    complete_bytes_max: int = 256 << 20
    """A whole answer (`stream: false`) that would be longer fails; ask for a stream instead."""
    instructions_chars_max: int = 4096
    encode_threads: int = 2
    sockets_max: int = 1024
    """WebSockets open at once. What would be more is refused with 429."""
    socket_config_s: float = 10.0
    """How long a new WebSocket may take to say what it wants."""
    socket_idle_s: float = 30.0
    """A WebSocket on which nothing happens for this long is closed."""
    socket_config_bytes_max: int = 4 << 20
    """A message with settings, which may hold a recording."""
    socket_text_bytes_max: int = 128 << 10
    """Any other message."""
    voices_dir: str = ""
    """Where uploaded voices are kept. Empty: uploads are refused."""
    voices_max: int = 1000
    trace_dir: str = ""
    """Where a timeline of every request is written, as a file. Empty: nowhere."""
