"""A tiny checkpoint of the 12 Hz speech tokenizer's decoder, and what the published implementation makes of it.

    python tests/parity/qwen_codec_reference.py     # with an interpreter that has qwen-tts; writes the file beside this

The weights come from a seed, so a test builds the same checkpoint and needs only the codes and samples kept here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_name("qwen_codec_reference.json")
SEED = 41
ROWS, FRAMES = 2, 40
DECODER = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "codebook_dim": 32,
    "codebook_size": 24,
    "decoder_dim": 64,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "latent_dim": 64,
    "layer_scale_initial_scale": 0.01,
    "max_position_embeddings": 8000,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_quantizers": 4,
    "num_semantic_quantizers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "semantic_codebook_size": 4096,
    "sliding_window": 7,
    "upsample_rates": [3, 2],
    "upsampling_ratios": [2, 2],
}
CONFIG = {
    "model_type": "qwen3_tts_tokenizer_12hz",
    "decoder_config": DECODER,
    "decode_upsample_rate": 24,
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
}


def tensors(d: dict = DECODER, seed: int = SEED) -> dict[str, np.ndarray]:
    """Names and shapes as in a real checkpoint, scaled so that values keep their size from layer to layer."""
    rng, found = np.random.default_rng(seed), {}

    def put(name: str, *size: int, fan: float = 1.0, mean: float = 0.0) -> None:
        found[f"decoder.{name}"] = (mean + rng.standard_normal(size) / fan**0.5).astype(np.float32)

    def conv(name: str, *size: int, fan: float) -> None:
        put(f"{name}.weight", *size, fan=fan)

    width, latent, hidden, half = d["codebook_dim"], d["latent_dim"], d["hidden_size"], d["codebook_dim"] // 2
    for group, books in (("first", 1), ("rest", d["num_quantizers"] - 1)):
        quantizer = f"quantizer.rvq_{group}"
        put(f"{quantizer}.input_proj.weight", half, width, 1)
        put(f"{quantizer}.output_proj.weight", width, half, 1, fan=half)
        for book in range(books):
            name = f"{quantizer}.vq.layers.{book}._codebook"
            usage = rng.uniform(0.5, 4, d["codebook_size"]).astype(np.float32)
            usage[3] = 0.0  # never used: counts as 1e-5
            sums = rng.standard_normal((d["codebook_size"], half)).astype(np.float32)
            found[f"decoder.{name}.cluster_usage"] = usage
            found[f"decoder.{name}.embedding_sum"] = sums * np.maximum(usage, 1e-5)[:, None]
    conv("pre_conv.conv", latent, width, 3, fan=3 * width)
    put("pre_conv.conv.bias", latent, fan=2500)
    model = "pre_transformer"
    for name, rows, columns in (("input_proj", hidden, latent), ("output_proj", latent, hidden)):
        put(f"{model}.{name}.weight", rows, columns, fan=columns)
        put(f"{model}.{name}.bias", rows, fan=2500)
    put(f"{model}.norm.weight", hidden, fan=100, mean=1)
    inner, inner_kv = (d[f"num_{kind}_heads"] * d["head_dim"] for kind in ("attention", "key_value"))
    for i in range(d["num_hidden_layers"]):
        layer = f"{model}.layers.{i}"
        for name, rows, columns in (
            ("self_attn.q_proj", inner, hidden),
            ("self_attn.k_proj", inner_kv, hidden),
            ("self_attn.v_proj", inner_kv, hidden),
            ("self_attn.o_proj", hidden, inner),
            ("mlp.gate_proj", d["intermediate_size"], hidden),
            ("mlp.up_proj", d["intermediate_size"], hidden),
            ("mlp.down_proj", hidden, d["intermediate_size"]),
        ):
            put(f"{layer}.{name}.weight", rows, columns, fan=columns / 2)
        for name, mean in (
            ("input_layernorm.weight", 1.0),
            ("post_attention_layernorm.weight", 1.0),
            ("self_attn_layer_scale.scale", 0.4),
            ("mlp_layer_scale.scale", 0.4),
        ):
            put(f"{layer}.{name}", hidden, fan=100, mean=mean)
    for i, rate in enumerate(d["upsampling_ratios"]):
        conv(f"upsample.{i}.0.conv", latent, latent, rate, fan=latent)
        conv(f"upsample.{i}.1.dwconv.conv", latent, 1, 7, fan=7)
        put(f"upsample.{i}.1.norm.weight", latent, fan=100, mean=1)
        put(f"upsample.{i}.1.pwconv1.weight", 4 * latent, latent, fan=latent)
        put(f"upsample.{i}.1.pwconv2.weight", latent, 4 * latent, fan=4 * latent)
        put(f"upsample.{i}.1.gamma", latent, fan=100, mean=0.5)
        for name, size in (("0.conv", 1), ("1.dwconv.conv", 1), ("1.norm", 1), ("1.pwconv1", 4), ("1.pwconv2", 1)):
            put(f"upsample.{i}.{name}.bias", size * latent, fan=2500)
    _stack(d, put, conv)
    return found


def _stack(d: dict, put, conv) -> None:
    """The convolutions from frames to samples."""
    channels = d["decoder_dim"]

    def snake(name: str) -> None:
        put(f"{name}.alpha", channels, fan=10)
        put(f"{name}.beta", channels, fan=10)

    conv("decoder.0.conv", channels, d["latent_dim"], 7, fan=7 * d["latent_dim"])
    put("decoder.0.conv.bias", channels, fan=2500)
    for i, rate in enumerate(d["upsample_rates"]):
        block = f"decoder.{i + 1}.block"
        snake(f"{block}.0")
        conv(f"{block}.1.conv", channels, channels // 2, 2 * rate, fan=2 * channels)
        channels //= 2
        put(f"{block}.1.conv.bias", channels, fan=2500)
        for unit in (2, 3, 4):
            snake(f"{block}.{unit}.act1")
            snake(f"{block}.{unit}.act2")
            conv(f"{block}.{unit}.conv1.conv", channels, channels, 7, fan=14 * channels)
            conv(f"{block}.{unit}.conv2.conv", channels, channels, 1, fan=11 * channels)
            for name in ("conv1", "conv2"):
                put(f"{block}.{unit}.{name}.conv.bias", channels, fan=2500)
    end = len(d["upsample_rates"]) + 1
    snake(f"decoder.{end}")
    conv(f"decoder.{end + 1}.conv", 1, channels, 7, fan=700 * channels)
    put(f"decoder.{end + 1}.conv.bias", 1, fan=2500)


def write_checkpoint(folder: Path, arrays: dict[str, np.ndarray], config: dict = CONFIG) -> None:
    """A safetensors file and its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(json.dumps(config))


def codes() -> np.ndarray:
    size = (ROWS, FRAMES, DECODER["num_quantizers"])
    return np.random.default_rng(SEED + 1).integers(0, DECODER["codebook_size"], size)


def main() -> None:
    import torch
    from qwen_tts.core.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as published
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), tensors())
        state = {k.removeprefix("decoder."): v for k, v in load_file(f"{folder}/model.safetensors").items()}
    model = published.Qwen3TTSTokenizerV2Decoder._from_config(published.Qwen3TTSTokenizerV2DecoderConfig(**DECODER))
    model.load_state_dict(state)
    with torch.inference_mode():
        samples = model.eval()(torch.from_numpy(codes()).transpose(1, 2))[:, 0].numpy()
    assert samples.shape == (ROWS, FRAMES * CONFIG["decode_upsample_rate"])
    rounded = [[float(f"{value:.9g}") for value in row] for row in samples]
    GOLDEN.write_text(json.dumps({"codes": codes().tolist(), "samples": rounded}) + "\n")


if __name__ == "__main__":
    main()
