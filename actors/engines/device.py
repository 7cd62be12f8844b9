"""Whether a stage's device is there: looked at before weights are fetched for it."""

from __future__ import annotations

from omnirt.errors import ConfigError, NoDevice
from omnirt.extras import extra


def ensure(device: str) -> None:
    """Raises NoDevice where `device` is a GPU and torch has none, ConfigError without torch."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"it needs torch ({error}); {extra('qwen3-tts')}") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        has = "sees no GPU" if torch.version.cuda else "is built without CUDA"
        raise NoDevice(f"it is placed on a GPU, and torch {torch.__version__} {has}")
