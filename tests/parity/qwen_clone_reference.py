"""What the reference implementation makes of three recordings, on a tiny random checkpoint: the golden file of cloning.

Run it where `qwen_tts` (0.1.1, with transformers 4.57.3) is installed, and only when the golden file is to change:

    python tests/parity/qwen_clone_reference.py

It writes qwen_clone_reference.npz beside itself. The tests need neither: they run this file for `write_checkpoint` and
`recording`, which make the same weights and recordings from names and seeds, with numpy alone.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_suffix(".npz")
RATE = 24_000
LENGTHS = (24_000, 23_040, 12_001, 60_000)
"""Samples: frames and a half, whole frames, a sample more than one, and more than the attention window."""
RATES = (8_000, 16_000, 44_100, 48_000)
RESAMPLED_S = 0.1

SPEAKER = {
    "mel_dim": 128,
    "enc_dim": 24,
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 4, 1],
    "enc_attention_channels": 12,
    "enc_res2net_scale": 4,
    "enc_se_channels": 8,
    "sample_rate": RATE,
}
ENCODER = {
    "num_filters": 4,
    "hidden_size": 32,
    "upsampling_ratios": [8, 6, 5, 4],
    "codebook_size": 64,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 8,
    "num_semantic_quantizers": 1,
    "upsample_groups": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 200,
    "rope_theta": 500.0,
    "sliding_window": 10,
    "frame_rate": 12.5,
    "use_causal_conv": True,
}
BOOKS = 4
DECODER = {
    "codebook_size": 64,
    "hidden_size": 16,
    "latent_dim": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_quantizers": BOOKS,
    "decoder_dim": 32,
    "codebook_dim": 16,
}
FAN_IN_GAIN = 2.4


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A weight that keeps what goes through it at about one; each name has its own."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).random(shape) * 2.0 - 1.0
    if name.endswith("cluster_usage"):
        return (noise + 2.0).astype(np.float32)
    if name.endswith("initialized"):
        return np.ones(shape, np.float32)
    if name.endswith(("layernorm.weight", "layer_scale.scale")):
        return (0.3 * noise + 0.8).astype(np.float32)
    if name.endswith(".bias"):
        return (0.1 * noise).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 and not name.endswith("embed_sum") else 4
    return (noise * FAN_IN_GAIN / np.sqrt(fan_in)).astype(np.float32)


def recording(length: int, rate: int = RATE, seed: int = 0) -> np.ndarray:
    """Coloured noise that swells and fades, float32 in -1..1."""
    noise = np.random.default_rng(seed).random(length) * 2.0 - 1.0
    spectrum = np.fft.rfft(noise) / (1.0 + np.linspace(0.0, rate / 2.0, length // 2 + 1) / 800.0)
    swell = 1.0 + 0.8 * np.sin(np.arange(length) * (2.0 * np.pi * 3.0 / rate) + seed)
    shaped = np.fft.irfft(spectrum, length) * swell
    return (0.5 * shaped / np.abs(shaped).max()).astype(np.float32)


def write_checkpoint(folder: Path, kind: str = "base") -> Path:
    """What cloning reads of a Base checkpoint, in the real layout."""
    with np.load(GOLDEN) as golden:
        facts = json.loads(golden["facts"].tobytes())
    speech = folder / "speech_tokenizer"
    speech.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "qwen3_tts", "tts_model_type": kind, "tokenizer_type": "qwen3_tts_tokenizer_12hz"}
    if kind == "base":
        config |= {"speaker_encoder_config": SPEAKER}
    (folder / "config.json").write_text(json.dumps(config))
    (speech / "config.json").write_text(json.dumps(facts["tokenizer_config"]))
    if kind == "base":
        _write(folder / "model.safetensors", facts["speaker"])
    _write(speech / "model.safetensors", facts["tokenizer"])
    return folder


def _write(path: Path, shapes: dict[str, list[int]]) -> None:
    """The safetensors format, float32."""
    tensors = {name: tensor(name, tuple(shape)) for name, shape in shapes.items()}
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(array.tobytes() for array in tensors.values()))


def main() -> None:
    import librosa
    import torch
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSSpeakerEncoderConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSSpeakerEncoder, mel_spectrogram
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model

    torch.set_num_threads(1)
    config = Qwen3TTSTokenizerV2Config(
        encoder_config=ENCODER, decoder_config=DECODER, encoder_valid_num_quantizers=BOOKS
    )
    tokenizer = Qwen3TTSTokenizerV2Model(config).eval()
    speaker = Qwen3TTSSpeakerEncoder(Qwen3TTSSpeakerEncoderConfig(**SPEAKER)).eval()
    tokenizer_names = {name: list(value.shape) for name, value in tokenizer.state_dict().items() if name[0] == "e"}
    speaker_names = {f"speaker_encoder.{name}": list(value.shape) for name, value in speaker.state_dict().items()}
    made = {name: torch.from_numpy(tensor(name, tuple(shape))) for name, shape in tokenizer_names.items()}
    tokenizer.load_state_dict(made, strict=False)
    prefix = len("speaker_encoder.")
    made = {name[prefix:]: torch.from_numpy(tensor(name, tuple(shape))) for name, shape in speaker_names.items()}
    speaker.load_state_dict(made)

    def mel_of(samples: np.ndarray) -> torch.Tensor:
        return mel_spectrogram(torch.from_numpy(samples)[None], 1024, 128, RATE, 256, 1024, 0, 12_000).transpose(1, 2)

    found: dict[str, np.ndarray] = {}
    with torch.inference_mode():
        for seed, length in enumerate(LENGTHS):
            samples = recording(length, seed=seed)
            whole = torch.ones(1, length, dtype=torch.long)
            codes = tokenizer.encode(torch.from_numpy(samples)[None], whole).audio_codes[0]
            found[f"codes_{length}"] = codes.numpy().astype(np.int16)
            found[f"embedding_{length}"] = speaker(mel_of(samples))[0].numpy()
        found["mel"] = mel_of(recording(12_001, seed=2))[0].numpy()
    for rate in RATES:
        samples = recording(round(rate * RESAMPLED_S), rate, seed=rate)
        found[f"resampled_{rate}"] = librosa.resample(y=samples, orig_sr=rate, target_sr=RATE)
    filters = librosa.filters.mel(sr=RATE, n_fft=1024, n_mels=128, fmin=0, fmax=12_000)
    found["filter_at"] = np.flatnonzero(filters).astype(np.int32)
    found["filter_values"] = filters.ravel()[found["filter_at"]]
    facts = {
        "tokenizer_config": json.loads(config.to_json_string()),
        "tokenizer": tokenizer_names,
        "speaker": speaker_names,
    }
    found["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    np.savez_compressed(GOLDEN, **found)


if __name__ == "__main__":
    main()
