"""Certificate files, read once at the start; what is wrong with one is said by its name."""

from __future__ import annotations

from pathlib import Path

from turnwire.core.errors import WrongState

__all__ = ["read_pem"]


def read_pem(path: Path | None) -> bytes | None:
    """Return the bytes of a PEM file, None for none.

    Raises:
        WrongState: it cannot be read, or holds no PEM (CERTIFICATE_UNREADABLE).
    """
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in data:
        raise _unreadable(path, "is no PEM file")
    return data


def _unreadable(path: Path, what: str) -> WrongState:
    return WrongState(f"the certificate file {path} {what}", reason="CERTIFICATE_UNREADABLE", path=str(path))
