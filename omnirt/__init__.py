"""omnirt: a serving runtime for any-to-any models, made of actors, events and shared memory."""

from omnirt.runtime.stage import Chunk, Context, Emission, EngineStage, Request, Stage

__all__ = ["Chunk", "Context", "Emission", "EngineStage", "Request", "Stage"]
__version__ = "0.1.0"
