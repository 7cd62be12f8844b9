"""model.safetensors from a GGUF file's tensors, in bfloat16, written as they are read.

Memory holds one slice of one tensor at a time. A slice is of whole rows, and quantised blocks lie along rows, so a
slice of any tensor can be dequantised alone; rows that the format keeps in another order are put back by their index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from omnirt.actors.models.gguf.metadata import Metadata
from omnirt.errors import ConfigError

SLICE_VALUES = 4 << 20
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SKIPPED = {"rope_freqs.weight"}
"""Said in config.json instead."""
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def write_weights(metadata: Metadata, config: dict[str, Any], target: Path, report: Callable[[str], None]) -> None:
    """Raises ConfigError for a tensor that has no place in the model or cannot be dequantised."""
    tensors = {parameter(name): tensor for name, tensor in metadata.tensors.items() if name not in _SKIPPED}
    for tensor in tensors.values():
        _check_readable(tensor)
    with target.open("wb") as file:
        file.write(_header(tensors))
        for number, (name, tensor) in enumerate(tensors.items()):
            if number % 64 == 0:
                report(f"converting weights {100 * number // len(tensors)} %")
            for values in _slices(tensor, _order(name, tensor, config)):
                file.write(bfloat16(values).tobytes())


def parameter(name: str) -> str:
    """The name of a tensor in the checkpoint layout."""
    found = _NAME.fullmatch(name)
    layer, part, kind = found.groups() if found else (None, "", "")
    known = (_WHOLE if layer is None else _LAYER).get(part)
    if known is None:
        raise ConfigError(f"the tensor {name} belongs to no part of the model")
    return f"{known}.{kind}" if layer is None else f"model.layers.{layer}.{known}.{kind}"


def bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of 32-bit numbers, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype("<u2")


def rotary_rows(rows: int, heads: int) -> np.ndarray:
    """Llama's files keep the two halves of a head's rows interleaved, row by row: where each row of ours is."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _order(name: str, tensor: Any, config: dict[str, Any]) -> np.ndarray | None:
    if config["model_type"] != "llama" or not (".q_proj." in name or ".k_proj." in name):
        return None
    heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
    return rotary_rows(int(tensor.shape[-1]), heads)


def _shape(tensor: Any) -> list[int]:
    return [int(size) for size in reversed(tensor.shape)]


def _header(tensors: dict[str, Any]) -> bytes:
    """Names, shapes and places, as a safetensors file begins."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + 2 * int(np.prod(_shape(tensor)))
        entries[name] = {"dtype": "BF16", "shape": _shape(tensor), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _slices(tensor: Any, order: np.ndarray | None) -> Iterator[np.ndarray]:
    """All values of a tensor as 32-bit numbers, some rows at a time."""
    from gguf.quants import dequantize

    shape = _shape(tensor)
    width = shape[-1]
    if len(shape) == 1 and order is not None:  # a bias: one number a row
        width = 1
    data = tensor.data.reshape(int(np.prod(shape)) // width, -1)
    rows = max(1, SLICE_VALUES // width)
    for start in range(0, len(data), rows):
        part = data[start : start + rows] if order is None else data[order[start : start + rows]]
        yield dequantize(np.ascontiguousarray(part), tensor.tensor_type)


def _check_readable(tensor: Any) -> None:
    """Before anything is written: dequantise one block."""
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import dequantize

    try:
        block = np.zeros((1, GGML_QUANT_SIZES[tensor.tensor_type][1]), np.uint8)
        dequantize(block, tensor.tensor_type)
    except (NotImplementedError, KeyError) as error:
        raise ConfigError(f"the tensor {tensor.name} is quantised as {tensor.tensor_type.name}, not read") from error
