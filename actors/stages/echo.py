"""Text back, word by word: the smallest real pipeline, and the one to try a server with."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec

from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request
from omnirt.wire.payload import Text
