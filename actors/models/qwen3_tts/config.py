"""config.json of a Qwen3-TTS checkpoint, read once: every dimension and every id from the file.

What would change the numbers and is not implemented is refused by its key. Nothing here needs torch: memory is planned
from this before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omnirt.actors.models.json_object import read_json
from omnirt.actors.models.qwen3_tts.config_fields import decimal, entries, ids, positive, section, whole
from omnirt.errors import ConfigError

if TYPE_CHECKING:
    from omnirt.kernels.frame_layout import FrameShape

MODEL_TYPE = "qwen3_tts"
TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
TASKS = ("custom_voice", "voice_design", "base")
CONTROL_CODES = 1024
"""The last ids of the first codebook: control ids, languages, speakers. Of these only the stop code is ever drawn."""
ROPE_TYPES = ("default", "mrope")
"""The three axes of mrope carry the same position here, so it is plain rope."""
_COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "num_code_groups",
)
_IDS = ("pad", "bos", "eos", "think", "nothink", "think_bos", "think_eos")
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "use_sliding_window": (False,),
    "tie_word_embeddings": (False,),
    "quantization_config": (),
}
"""Keys with the values that are implemented; absent and null are always fine."""


class Decoder(msgspec.Struct, frozen=True):
    """The dimensions of one of the two decoders, under the names of `kernels.frame_layout.DecoderShape`."""

    width: int
    feed: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    theta: float


class CodecIds(msgspec.Struct, frozen=True):
    """Control ids of the first codebook."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


class TextIds(msgspec.Struct, frozen=True):
    """Ids of the text vocabulary that stand for no text."""

    im_start: int
    im_end: int
    pad: int
    bos: int
    eos: int


class Qwen3TtsConfig(msgspec.Struct, frozen=True):
    task: str
    """custom_voice, voice_design or base."""
    size: str
    """As the checkpoint says it: `0b6`, `1b7`."""
    backbone: Decoder
    predictor: Decoder
    vocab: int
    """Ids of the first codebook, control ids included."""
    codes: int
    """Of each codebook: what a frame may hold."""
    books: int
    context: int
    """Positions that the backbone was made for."""
    text_vocab: int
    text_width: int
    codec: CodecIds
    text: TextIds
    languages: Mapping[str, int]
    """By lower-case name; dialects among them."""
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]
    """Of the speakers that have one: a name of `languages`."""
    speaker_encoder: Mapping[str, Any]
    """speaker_encoder_config as it stands."""

    @classmethod
    def read(cls, folder: Path) -> Qwen3TtsConfig:
        """Raises ConfigError naming the file, the key and what it may be."""
        path = folder / "config.json"
        try:
            return _config(read_json(path))
        except ConfigError as error:
            known = error.message.startswith(str(path))
            raise ConfigError(error.message if known else f"{path}: {error.message}") from None

    @property
    def shape(self) -> FrameShape:
        """For the frame step. Imports torch."""
        from omnirt.kernels.frame_layout import DecoderShape, FrameShape

        decoders = [DecoderShape(**msgspec.structs.asdict(part)) for part in (self.backbone, self.predictor)]
        return FrameShape(*decoders, vocab=self.vocab, codes=self.codes, books=self.books, stop_code=self.codec.eos)

    @property
    def suppressed(self) -> tuple[int, ...]:
        """First codes that are never drawn."""
        return tuple(code for code in range(self.vocab - CONTROL_CODES, self.vocab) if code != self.codec.eos)

    @property
    def follows_instructions(self) -> bool:
        """The small custom-voice checkpoints were not trained for them."""
        return self.task == "voice_design" or (self.task == "custom_voice" and self.size != "0b6")


def _config(raw: Mapping[str, Any]) -> Qwen3TtsConfig:
    _only(raw, "model_type", (MODEL_TYPE,))
    _only(raw, "tokenizer_type", (TOKENIZER_TYPE,))
    _only(raw, "tts_model_type", TASKS)
    talker = section(raw, "talker_config")
    inner = section(talker, "code_predictor_config", "talker_config.")
    _refuse(raw, "", ("quantization_config",))
    backbone = _decoder(talker, "talker_config.")
    predictor = _decoder(inner, "talker_config.code_predictor_config.")
    languages = ids(talker, "codec_language_id", "talker_config.")
    speakers = ids(talker, "spk_id", "talker_config.")
    config = Qwen3TtsConfig(
        task=raw["tts_model_type"],
        size=str(raw.get("tts_model_size") or ""),
        backbone=backbone,
        predictor=predictor,
        vocab=talker["vocab_size"],
        codes=inner["vocab_size"],
        books=talker["num_code_groups"],
        context=positive(talker, "max_position_embeddings", "talker_config.", 32_768),
        text_vocab=positive(talker, "text_vocab_size", "talker_config."),
        text_width=positive(talker, "text_hidden_size", "talker_config."),
        codec=CodecIds(
            **{name: whole(talker, f"codec_{name}{'_token' * (name == 'eos')}_id", "talker_config.") for name in _IDS}
        ),
        text=_text_ids(raw),
        languages=languages,
        speakers=speakers,
        dialects=_dialects(talker, speakers, languages),
        speaker_encoder=dict(entries(raw, "speaker_encoder_config", "")),
    )
    _check(config, inner)
    return config


def _check(config: Qwen3TtsConfig, inner: Mapping[str, Any]) -> None:
    if inner["num_code_groups"] != config.books or config.books < 2:
        raise ConfigError(
            f"talker_config.num_code_groups = {config.books} and code_predictor_config.num_code_groups = "
            f"{inner['num_code_groups']} must be the same number, two at least"
        )
    if config.vocab - CONTROL_CODES < config.codes:
        raise ConfigError(
            f"talker_config.vocab_size = {config.vocab} must hold the {config.codes} codes of a frame and "
            f"{CONTROL_CODES} control ids"
        )
    named = {**msgspec.structs.asdict(config.codec), **config.languages, **config.speakers}
    beyond = [name for name, code in named.items() if not 0 <= code < config.vocab]
    if beyond:
        raise ConfigError(f"talker_config: ids beyond vocab_size = {config.vocab}: {', '.join(beyond)}")
    beyond = [name for name, code in msgspec.structs.asdict(config.text).items() if not 0 <= code < config.text_vocab]
    if beyond:
        raise ConfigError(f"token ids beyond text_vocab_size = {config.text_vocab}: {', '.join(beyond)}")
    width = config.speaker_encoder.get("enc_dim", 1024)
    if config.task == "base" and width != config.backbone.width:
        raise ConfigError(
            f"speaker_encoder_config.enc_dim = {width} must be talker_config.hidden_size = {config.backbone.width}"
        )
    if config.task == "custom_voice" and not config.speakers:
        raise ConfigError("talker_config.spk_id names no speaker, which a custom_voice checkpoint needs")


def _decoder(raw: Mapping[str, Any], where: str) -> Decoder:
    for key in _COUNTS:
        positive(raw, key, where)
    _refuse(raw, where, tuple(_REFUSED))
    layers = raw.get("layer_types") or []
    if not isinstance(layers, list) or any(kind != "full_attention" for kind in layers):
        raise ConfigError(f"{where}layer_types = {layers!r} is not supported, only full_attention")
    scaling = entries(raw, "rope_scaling", where)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_TYPES:
        raise ConfigError(f"{where}rope_scaling.rope_type = {kind!r} is not supported, only {' or '.join(ROPE_TYPES)}")
    heads, kv_heads = raw["num_attention_heads"], raw["num_key_value_heads"]
    head = positive(raw, "head_dim", where, raw["hidden_size"] // heads)
    if heads % kv_heads:
        raise ConfigError(f"{where}num_attention_heads = {heads} is no multiple of num_key_value_heads = {kv_heads}")
    if head % 2:
        raise ConfigError(f"{where}head_dim = {head} is odd, rotary positions need pairs")
    return Decoder(
        width=raw["hidden_size"],
        feed=raw["intermediate_size"],
        layers=raw["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        eps=decimal(raw, "rms_norm_eps", where, 1e-6),
        theta=decimal(raw, "rope_theta", where, 10_000.0),
    )


def _refuse(raw: Mapping[str, Any], where: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        if raw.get(key) is not None and raw[key] not in _REFUSED[key]:
            said = " or ".join(repr(value) for value in _REFUSED[key])
            raise ConfigError(f"{where}{key} = {raw[key]!r} is not supported" + (f", only {said} is" if said else ""))


def _only(raw: Mapping[str, Any], key: str, valid: tuple[str, ...]) -> None:
    if raw.get(key) not in valid:
        raise ConfigError(f"{key} = {raw.get(key)!r} is not supported; supported: {', '.join(valid)}")


def _text_ids(raw: Mapping[str, Any]) -> TextIds:
    keys = {"pad": "tts_pad", "bos": "tts_bos", "eos": "tts_eos", "im_start": "im_start", "im_end": "im_end"}
    return TextIds(**{name: whole(raw, f"{key}_token_id", "") for name, key in keys.items()})


def _dialects(talker: Mapping[str, Any], speakers: Mapping[str, int], languages: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, dialect in entries(talker, "spk_is_dialect", "talker_config.").items():
        if not dialect:
            continue
        if str(name).lower() not in speakers or str(dialect).lower() not in languages:
            raise ConfigError(
                f"talker_config.spk_is_dialect.{name} = {dialect!r}: spk_id must name the speaker and "
                "codec_language_id the dialect"
            )
        found[str(name).lower()] = str(dialect).lower()
    return found
