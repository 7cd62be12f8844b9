"""Everything that can go wrong for a caller, as a tree of typed errors.

    OmnirtError
    |- InvalidRequest     the caller's fault; `param` names the field
    |- NotFound           no such model, voice, route
    |- Unsupported        understood, but this pipeline cannot do it
    |- Overloaded         admission refused; try again after `retry_after_s`
    |- NotReady           loading, draining, or a stage has no live replica
    |- StageLost          the process of a stage died or hung while it held the request
    |- StageFailed        a stage raised; `stage` names it
    |- DeviceLost         the device under a stage is unusable until its process restarts
    |- DeadlineExceeded   the request's deadline passed
    |- Cancelled          the caller went away, or asked for it
    `- ConfigError        a pipeline file, overlay or option is wrong (never reaches a client)
       `- NoDevice        a stage is placed on a device that is not there

Each class has a stable `code`; on the wire between processes an error is a `Failure`.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Failure(Struct, frozen=True, array_like=True, tag="failure"):
    """An error on its way between processes."""

    code: str
    message: str
    stage: str = ""
    param: str = ""
    """The field of the request that is to blame, if one is."""


class OmnirtError(Exception):
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, stage: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage

    def failure(self) -> Failure:
        return Failure(self.code, self.message, self.stage)


class InvalidRequest(OmnirtError):
    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, stage: str = "") -> None:
        super().__init__(message, stage=stage)
        self.param = param

    def failure(self) -> Failure:
        return Failure(self.code, self.message, self.stage, self.param or "")


class NotFound(OmnirtError):
    code = "not_found"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Unsupported(OmnirtError):
    code = "unsupported"


class Overloaded(OmnirtError):
    code = "queue_full"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReady(OmnirtError):
    """`reason` is `model_loading`, `shutting_down` or `engine_dead`."""

    code = "not_ready"

    def __init__(self, message: str, *, reason: str, stage: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, stage=stage)
        self.reason = reason
        self.retry_after_s = retry_after_s


class StageLost(OmnirtError):
    code = "stage_lost"


class StageFailed(OmnirtError):
    code = "stage_failed"


class DeviceLost(OmnirtError):
    code = "device_lost"


class DeadlineExceeded(OmnirtError):
    code = "timeout"


class Cancelled(OmnirtError):
    code = "cancelled"


class ConfigError(OmnirtError):
    code = "config_error"


class NoDevice(ConfigError):
    """The node adds how to place the stage elsewhere."""

    code = "no_device"


_BY_CODE: dict[str, type[OmnirtError]] = {
    kind.code: kind for kind in (StageLost, StageFailed, DeviceLost, DeadlineExceeded, Cancelled, Unsupported)
}


def error_from(failure: Failure) -> OmnirtError:
    """The exception a failure stands for."""
    if failure.code == InvalidRequest.code:
        return InvalidRequest(failure.message, param=failure.param or None, stage=failure.stage)
    if failure.code == NotReady.code:  # of what was admitted, only a stop ends a request this way
        return NotReady(failure.message, reason="shutting_down", stage=failure.stage)
    if failure.code == Overloaded.code:
        return Overloaded(failure.message)
    return _BY_CODE.get(failure.code, OmnirtError)(failure.message, stage=failure.stage)
