"""Multipart bodies, byte by byte, for tests."""

from __future__ import annotations

BOUNDARY = "----boundary-of-a-test"

Part = tuple[str, str | bytes] | tuple[str, str | bytes, str]
"""Name and value; with a file name, a file."""


def form(*parts: Part) -> tuple[bytes, dict[str, str]]:
    """Body and headers."""
    pieces = [part(entry[0], entry[1], entry[2] if len(entry) == 3 else None) for entry in parts]
    body = b"".join(pieces) + f"--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def part(name: str, value: str | bytes, filename: str | None = None) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'
    if filename is not None:
        head += f'; filename="{filename}"\r\nContent-Type: application/octet-stream'
    return head.encode() + b"\r\n\r\n" + (value.encode() if isinstance(value, str) else value) + b"\r\n"
