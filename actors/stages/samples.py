"""Samples as they leave for a client."""

from __future__ import annotations

import numpy as np


def to_int16(samples: np.ndarray) -> np.ndarray:
    """-1..1 float to int16. What is louder stays at the rail; it never wraps round."""
    return np.clip(np.rint(samples * 32767.0), -32767, 32767).astype(np.int16)
