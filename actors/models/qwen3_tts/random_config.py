"""config.json and its companions of checkpoints with random weights: the published sizes, and tiny ones for tests.

The tiny ones keep every relation of the published ones: control ids behind the codes, a predictor of another width
(`tiny`, as 1b7) or of the same (`tiny_0b6`), a decoder of 1,920 samples a frame.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = ("custom_voice", "voice_design", "base")
CONTROL = 1024
"""Ids behind the codes."""
LANGUAGES = {
    "chinese": 7,
    "english": 2,
    "german": 5,
    "italian": 22,
    "portuguese": 23,
    "spanish": 6,
    "japanese": 10,
    "korean": 16,
    "french": 13,
    "russian": 21,
    "beijing_dialect": 26,
    "sichuan_dialect": 14,
}
"""From the end of the codes on, as all these."""
SPEAKERS = {
    "serena": 1018,
    "vivian": 1017,
    "uncle_fu": 962,
    "ryan": 1013,
    "aiden": 813,
    "ono_anna": 825,
    "sohee": 816,
    "eric": 827,
    "dylan": 830,
}
DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
_CODEC_IDS = {
    "codec_pad_id": 100,
    "codec_bos_id": 101,
    "codec_eos_token_id": 102,
    "codec_think_id": 106,
    "codec_nothink_id": 107,
    "codec_think_bos_id": 108,
    "codec_think_eos_id": 109,
}


class Size(NamedTuple):
    name: str
    """As config.json says it."""
    width: int
    feed: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    inner_width: int
    inner_feed: int
    inner_layers: int
    codes: int
    books: int
    text_width: int
    text_first: int
    """The id of the first added token."""
    is_tiny: bool


SIZES = {
    "tiny": Size("1b7", 64, 96, 2, 4, 2, 16, 32, 48, 2, 64, 4, 48, 0, True),
    "tiny_0b6": Size("0b6", 48, 80, 2, 4, 2, 16, 48, 64, 1, 64, 4, 64, 0, True),
    "0b6": Size("0b6", 1024, 3072, 28, 16, 8, 128, 1024, 3072, 5, 2048, 16, 2048, 151_643, False),
    "1b7": Size("1b7", 2048, 6144, 28, 16, 8, 128, 1024, 3072, 5, 2048, 16, 2048, 151_643, False),
}
GENERATION = {
    "do_sample": True,
    "repetition_penalty": 1.05,
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 50,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_p": 1.0,
    "subtalker_top_k": 50,
    "max_new_tokens": 8192,
}
EXTRACTOR = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24_000,
}


def root(kind: str, size: Size, added: dict[str, int], text_vocab: int) -> dict[str, Any]:
    """config.json. `added`: ids of the added tokens."""
    raw: dict[str, Any] = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": size.name,
        "tts_model_type": kind,
        "im_start_token_id": added["<|im_start|>"],
        "im_end_token_id": added["<|im_end|>"],
        "assistant_token_id": added["assistant"],
        "tts_pad_token_id": added["<tts_pad>"],
        "tts_bos_token_id": added["<tts_text_bos>"],
        "tts_eos_token_id": added["<tts_text_eod>"],
        "talker_config": _talker(kind, size, text_vocab),
    }
    return raw | ({"speaker_encoder_config": _speaker_encoder(size)} if kind == "base" else {})


def _talker(kind: str, size: Size, text_vocab: int) -> dict[str, Any]:
    speakers = SPEAKERS if kind == "custom_voice" else {}
    third = size.head // 2 * 5 // 16
    return {
        "model_type": "qwen3_tts_talker",
        **_decoder(size.width, size.feed, size.layers, size),
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": [size.head // 2 - 2 * third, third, third],
            "rope_type": "default",
            "type": "default",
        },
        "vocab_size": size.codes + CONTROL,
        "text_vocab_size": text_vocab,
        "text_hidden_size": size.text_width,
        "max_position_embeddings": 32_768,
        "position_id_per_seconds": 13,
        **{key: size.codes + place for key, place in _CODEC_IDS.items()},
        "codec_language_id": {name: size.codes + place for name, place in LANGUAGES.items()},
        "spk_id": {name: size.codes + place for name, place in speakers.items()},
        "spk_is_dialect": {name: DIALECTS.get(name, False) for name in speakers},
        "code_predictor_config": {
            "model_type": "qwen3_tts_talker_code_predictor",
            **_decoder(size.inner_width, size.inner_feed, size.inner_layers, size),
            "vocab_size": size.codes,
            "rope_scaling": None,
            "layer_types": ["full_attention"] * size.inner_layers,
            "max_position_embeddings": 65_536,
            "max_window_layers": 28,
        },
    }


def _decoder(width: int, feed: int, layers: int, size: Size) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": feed,
        "num_hidden_layers": layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0,
        "num_code_groups": size.books,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "sliding_window": None,
        "use_sliding_window": False,
        "use_cache": True,
        "tie_word_embeddings": False,
    }


def _speaker_encoder(size: Size) -> dict[str, Any]:
    if not size.is_tiny:
        return {"enc_dim": size.width, "sample_rate": 24_000}
    return {
        "mel_dim": 128,
        "enc_dim": size.width,
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_kernel_sizes": [5, 3, 3, 3, 1],
        "enc_dilations": [1, 2, 3, 4, 1],
        "enc_attention_channels": 8,
        "enc_res2net_scale": 4,
        "enc_se_channels": 8,
        "sample_rate": 24_000,
    }


def speech_tokenizer(size: Size) -> dict[str, Any]:
    """config.json of its own folder."""
    tiny = size.is_tiny
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": size.books,
        "input_sample_rate": 24_000,
        "output_sample_rate": 24_000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
        "decoder_config": _tiny_decoder(size) if tiny else _decoder_config(size),
        "encoder_config": _encoder_config(size),
    }


def _decoder_config(size: Size) -> dict[str, Any]:
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "latent_dim": 1024,
        "codebook_dim": 512,
        "codebook_size": size.codes,
        "decoder_dim": 1536,
        "hidden_act": "silu",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "head_dim": 64,
        "num_attention_heads": 16,
        "num_hidden_layers": 8,
        "num_key_value_heads": 16,
        "num_quantizers": size.books,
        "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000,
        "semantic_codebook_size": 2 * size.codes,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": 512,
    }


def _tiny_decoder(size: Size) -> dict[str, Any]:
    return _decoder_config(size) | {
        "latent_dim": 32,
        "codebook_dim": 16,
        "decoder_dim": 32,
        "hidden_size": 24,
        "intermediate_size": 32,
        "head_dim": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "sliding_window": 8,
        "vector_quantization_hidden_dimension": 16,
    }


def _encoder_config(size: Size) -> dict[str, Any]:
    tiny = size.is_tiny
    width = 32 if tiny else 512
    return {
        "model_type": "mimi",
        "audio_channels": 1,
        "codebook_dim": 16 if tiny else 256,
        "codebook_size": size.codes,
        "compress": 2,
        "dilation_growth_rate": 2,
        "head_dim": 8 if tiny else 64,
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 48 if tiny else 2048,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "norm_eps": 1e-5,
        "num_attention_heads": width // (8 if tiny else 64),
        "num_filters": 4 if tiny else 64,
        "num_hidden_layers": 2 if tiny else 8,
        "num_key_value_heads": width // (8 if tiny else 64),
        "num_quantizers": 2 * size.books,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "rope_theta": 10_000.0,
        "sampling_rate": 24_000,
        "sliding_window": 250,
        "trim_right_ratio": 1.0,
        "upsample_groups": width,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "vector_quantization_hidden_dimension": 16 if tiny else 256,
    }
