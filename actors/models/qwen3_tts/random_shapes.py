"""Names and shapes of what a checkpoint holds beside the talker: the speaker encoder, and the speech tokenizer's
decoder and encoder. For making checkpoints; whoever reads one checks for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shapes = dict[str, tuple[int, ...]]


def speaker_encoder(raw: Mapping[str, Any]) -> Shapes:
    """`raw`: speaker_encoder_config; what it leaves out is as published."""
    channels = raw.get("enc_channels", [512, 512, 512, 512, 1536])
    kernels = raw.get("enc_kernel_sizes", [5, 3, 3, 3, 1])
    scale, squeezed = raw.get("enc_res2net_scale", 8), raw.get("enc_se_channels", 128)
    attention, last = raw.get("enc_attention_channels", 128), channels[-1]
    found: Shapes = {}
    found |= _conv("speaker_encoder.blocks.0.conv", channels[0], raw.get("mel_dim", 128), kernels[0])
    for at in range(1, len(channels) - 1):
        here, wide, part = f"speaker_encoder.blocks.{at}.", channels[at], channels[at] // scale
        found |= _conv(f"{here}tdnn1.conv", wide, channels[at - 1], 1) | _conv(f"{here}tdnn2.conv", wide, wide, 1)
        for piece in range(scale - 1):
            found |= _conv(f"{here}res2net_block.blocks.{piece}.conv", part, part, kernels[at])
        found |= _conv(f"{here}se_block.conv1", squeezed, wide, 1) | _conv(f"{here}se_block.conv2", wide, squeezed, 1)
    found |= _conv("speaker_encoder.mfa.conv", last, last, kernels[-1])
    found |= _conv("speaker_encoder.asp.tdnn.conv", attention, 3 * last, 1)
    found |= _conv("speaker_encoder.asp.conv", last, attention, 1)
    return found | _conv("speaker_encoder.fc", raw.get("enc_dim", 1024), 2 * last, 1)


def speech_tokenizer(raw: Mapping[str, Any]) -> Shapes:
    """`raw`: config.json of the speech tokenizer."""
    return _decoder(raw["decoder_config"]) | _encoder(raw["encoder_config"])


def _decoder(raw: Mapping[str, Any]) -> Shapes:
    latent, wide, book = raw["latent_dim"], raw["decoder_dim"], raw["codebook_dim"]
    found = _pre_transformer(raw)
    for part, count in (("rvq_first", 1), ("rvq_rest", raw["num_quantizers"] - 1)):
        here = f"decoder.quantizer.{part}."
        found |= {f"{here}input_proj.weight": (book // 2, book, 1), f"{here}output_proj.weight": (book, book // 2, 1)}
        for at in range(count):
            found[f"{here}vq.layers.{at}._codebook.cluster_usage"] = (raw["codebook_size"],)
            found[f"{here}vq.layers.{at}._codebook.embedding_sum"] = (raw["codebook_size"], book // 2)
    found |= _conv("decoder.pre_conv.conv", latent, book, 3)
    for at, ratio in enumerate(raw["upsampling_ratios"]):
        here = f"decoder.upsample.{at}."
        found |= {f"{here}0.conv.weight": (latent, latent, ratio), f"{here}0.conv.bias": (latent,)}
        found |= _conv(f"{here}1.dwconv.conv", latent, 1, 7) | {f"{here}1.gamma": (latent,)}
        found |= {f"{here}1.norm.weight": (latent,), f"{here}1.norm.bias": (latent,)}
        found |= _linear(f"{here}1.pwconv1", 4 * latent, latent) | _linear(f"{here}1.pwconv2", latent, 4 * latent)
    found |= _conv("decoder.decoder.0.conv", wide, latent, 7)
    for at, rate in enumerate(raw["upsample_rates"], start=1):
        found |= _decoder_block(f"decoder.decoder.{at}.block.", wide, rate)
        wide //= 2
    end = len(raw["upsample_rates"]) + 1
    return found | _snake(f"decoder.decoder.{end}", wide) | _conv(f"decoder.decoder.{end + 1}.conv", 1, wide, 7)


def _pre_transformer(raw: Mapping[str, Any]) -> Shapes:
    width, latent, feed = raw["hidden_size"], raw["latent_dim"], raw["intermediate_size"]
    q, kv = raw["num_attention_heads"] * raw["head_dim"], raw["num_key_value_heads"] * raw["head_dim"]
    here = "decoder.pre_transformer."
    found: Shapes = {f"{here}norm.weight": (width,)}
    found |= _linear(f"{here}input_proj", width, latent) | _linear(f"{here}output_proj", latent, width)
    for at in range(raw["num_hidden_layers"]):
        found |= {f"{here}layers.{at}.{name}": shape for name, shape in _attention(width, q, kv).items()}
        found |= {
            f"{here}layers.{at}.mlp.gate_proj.weight": (feed, width),
            f"{here}layers.{at}.mlp.up_proj.weight": (feed, width),
            f"{here}layers.{at}.mlp.down_proj.weight": (width, feed),
        }
    return found


def _decoder_block(here: str, wide: int, rate: int) -> Shapes:
    half = wide // 2
    found = _snake(f"{here}0", wide) | {f"{here}1.conv.weight": (wide, half, 2 * rate), f"{here}1.conv.bias": (half,)}
    for unit in (2, 3, 4):
        found |= _snake(f"{here}{unit}.act1", half) | _conv(f"{here}{unit}.conv1.conv", half, half, 7)
        found |= _snake(f"{here}{unit}.act2", half) | _conv(f"{here}{unit}.conv2.conv", half, half, 1)
    return found


def _encoder(raw: Mapping[str, Any]) -> Shapes:
    width, feed, wide = raw["hidden_size"], raw["intermediate_size"], raw["num_filters"]
    here = "encoder.encoder.layers."
    found = _conv(f"{here}0.conv", wide, raw["audio_channels"], raw["kernel_size"])
    at = 1
    for ratio in reversed(raw["upsampling_ratios"]):
        squeezed = wide // raw["compress"]
        found |= _conv(f"{here}{at}.block.1.conv", squeezed, wide, raw["residual_kernel_size"])
        found |= _conv(f"{here}{at}.block.3.conv", wide, squeezed, 1)
        found |= _conv(f"{here}{at + 2}.conv", 2 * wide, wide, 2 * ratio)
        at, wide = at + 3, 2 * wide
    found |= _conv(f"{here}{at + 1}.conv", width, wide, raw["last_kernel_size"])
    q, kv = raw["num_attention_heads"] * raw["head_dim"], raw["num_key_value_heads"] * raw["head_dim"]
    for layer in range(raw["num_hidden_layers"]):
        here = f"encoder.encoder_transformer.layers.{layer}."
        found |= {f"{here}{name}": shape for name, shape in _attention(width, q, kv).items()}
        found |= {f"{here}mlp.fc1.weight": (feed, width), f"{here}mlp.fc2.weight": (width, feed)}
        found |= {f"{here}{norm}_layernorm.bias": (width,) for norm in ("input", "post_attention")}
    found["encoder.downsample.conv.weight"] = (width, width, 4)
    return found | _encoder_books(raw)


def _encoder_books(raw: Mapping[str, Any]) -> Shapes:
    width, inner, codes = raw["hidden_size"], raw["vector_quantization_hidden_dimension"], raw["codebook_size"]
    semantic = raw["num_semantic_quantizers"]
    found: Shapes = {}
    for part, count in (("semantic", semantic), ("acoustic", raw["num_quantizers"] - semantic)):
        here = f"encoder.quantizer.{part}_residual_vector_quantizer."
        found |= {f"{here}input_proj.weight": (inner, width, 1), f"{here}output_proj.weight": (width, inner, 1)}
        for at in range(count):
            book = f"{here}layers.{at}.codebook."
            found |= {f"{book}initialized": (1,), f"{book}cluster_usage": (codes,)}
            found[f"{book}embed_sum"] = (codes, raw["codebook_dim"])
    return found


def _attention(width: int, q: int, kv: int) -> Shapes:
    return {
        "self_attn.q_proj.weight": (q, width),
        "self_attn.k_proj.weight": (kv, width),
        "self_attn.v_proj.weight": (kv, width),
        "self_attn.o_proj.weight": (width, q),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn_layer_scale.scale": (width,),
        "mlp_layer_scale.scale": (width,),
    }


def _conv(name: str, outputs: int, inputs: int, kernel: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs, kernel), f"{name}.bias": (outputs,)}


def _linear(name: str, outputs: int, inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _snake(name: str, channels: int) -> Shapes:
    return {f"{name}.alpha": (channels,), f"{name}.beta": (channels,)}
