"""Small GGUF files, written by the format's own library."""

import numpy as np
import pytest

SIZES = {"layers": 2, "hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "context": 128}
KEYS = {
    "block_count": SIZES["layers"],
    "context_length": SIZES["context"],
    "embedding_length": SIZES["hidden"],
    "feed_forward_length": SIZES["ffn"],
    "attention.head_count": SIZES["heads"],
    "attention.head_count_kv": SIZES["kv_heads"],
}


class GgufFile:
    """Everything in one, changed at will before `write`."""

    def __init__(self, architecture, vocabulary):
        self.architecture = architecture
        self.keys = dict(KEYS)
        self.floats = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
        self.texts = {}
        self.vocabulary = vocabulary
        self.kinds = [3 if token in vocabulary["special"] else 1 for token in vocabulary["tokens"]]
        self.model, self.pre = "gpt2", "default"
        self.ids = {"bos": 1, "eos": 2}
        self.add_bos = False
        self.template = vocabulary["template"]
        self.tensors = {}
        self.types = {}
        """Quantisation by name of tensor; float32 otherwise."""

    def fill(self, seed=0):
        """Random tensors for all parts of a llama."""
        rng = np.random.default_rng(seed)
        hidden, ffn = SIZES["hidden"], SIZES["ffn"]
        kv = hidden // SIZES["heads"] * SIZES["kv_heads"]
        shapes = {"token_embd.weight": (len(self.vocabulary["tokens"]), hidden), "output_norm.weight": (hidden,)}
        for layer in range(SIZES["layers"]):
            parts = {
                "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn_q": (hidden, hidden), "attn_k": (kv, hidden),
                "attn_v": (kv, hidden), "attn_output": (hidden, hidden), "ffn_gate": (ffn, hidden),
                "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn),
            }  # fmt: skip
            shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in parts.items()}
        self.tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        return self

    def write(self, path):
        from gguf import GGMLQuantizationType, GGUFWriter
        from gguf.quants import quantize

        writer = GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            writer.add_uint32(f"{self.architecture}.{key}", value)
        for key, value in self.floats.items():
            writer.add_float32(f"{self.architecture}.{key}", value)
        for key, value in self.texts.items():
            writer.add_string(f"{self.architecture}.{key}", value)
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.vocabulary["tokens"])
        writer.add_token_types(self.kinds)
        writer.add_token_merges([" ".join(merge) for merge in self.vocabulary["merges"]])
        for role, number in self.ids.items():
            writer.add_uint32(f"tokenizer.ggml.{role}_token_id", number)
        writer.add_add_bos_token(self.add_bos)
        if self.template:
            writer.add_chat_template(self.template)
        for name, values in self.tensors.items():
            kind = GGMLQuantizationType[self.types.get(name, "F32")]
            data = values if kind == GGMLQuantizationType.F32 else quantize(values, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@pytest.fixture
def gguf_file(vocabulary):
    return lambda architecture="llama": GgufFile(architecture, vocabulary)


@pytest.fixture
def metadata_of(gguf_file, tmp_path):
    """Of a file as it is after `change`."""
    from omnirt.actors.models.gguf.metadata import Metadata

    def read(change=lambda file: None, architecture="llama"):
        file = gguf_file(architecture).fill()
        change(file)
        return Metadata.of(file.write(tmp_path / f"{architecture}.gguf"))

    return read
