"""File types by leading bytes. A type named by a server or a user proves nothing.

Values only; nothing is decoded or unpacked.
"""

from __future__ import annotations

BINARY = "application/octet-stream"
"""Type of bytes that contradict their name."""

_BEGINNINGS = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_PROGRAMS = (b"\x7fELF", b"MZ", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_ALIASES = {
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/x-flac": "audio/flac",
    "image/jpg": "image/jpeg",
}
_ZIPPED = ("application/vnd.", "application/epub", "application/java", "application/x-zip")
"""Prefixes of MIME types of ZIP archives."""
_SEEN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def detect_image_type(data: bytes) -> str:
    """Return the type of an image by its first bytes; empty if models do not accept it. Models reject an image that is
    named as another type.
    """
    media_type = _by_beginning(data)
    return media_type if media_type in _SEEN else ""


def detect_media_type(data: bytes, claimed: str) -> str:
    """Return the type of bytes that are named `claimed`: their type by leading bytes, or `claimed` if nothing
    contradicts it; BINARY for a program, or if the bytes contradict `claimed`.
    """
    named = claimed.partition(";")[0].strip().lower()
    named = _ALIASES.get(named, named)
    if data.startswith(_PROGRAMS):
        return BINARY
    detected = _by_beginning(data)
    if detected == "application/zip" and named.startswith(_ZIPPED):
        return named
    if named.startswith("text/"):
        return named if _is_text(data) else detected or BINARY
    if detected or named in {*(media_type for _, media_type in _BEGINNINGS), *_RIFF.values()}:
        return detected or BINARY
    return named if "/" in named and named.isascii() and named.isprintable() and " " not in named else BINARY


def _by_beginning(data: bytes) -> str:
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], "")
    return next((mime_type for beginning, mime_type in _BEGINNINGS if data.startswith(beginning)), "")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False
