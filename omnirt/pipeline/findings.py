"""One thing wrong with a configuration, and all of them together as an error.

Nothing in this package stops at the first mistake: every step returns what it could understand and a list of findings.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from omnirt.errors import ConfigError


class Origin(Struct, frozen=True):
    """Where a value was written: a file and line, or `--set key=value` with line 0."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Finding(Struct, frozen=True):
    """`place` is the stage, edge or key. A warning does not stop the pipeline from running."""

    origin: Origin
    place: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        level = "warning" if self.warning else "error"
        place = f"{self.place}: " if self.place else ""
        return f"{self.origin}: {level}: {place}{self.message}"


class PipelineError(ConfigError):
    """A pipeline that cannot run; `findings` holds every error and warning, the message one line for each."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.warning]
