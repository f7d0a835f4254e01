"""File kinds, by the platform's MIME type, the name and the first bytes."""

from __future__ import annotations

from enum import Enum, auto

from bot.domain.conversations import Attachment

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"})
_TEXT_TYPES = frozenset(
    f"application/{name}"
    for name in (
        *("csv", "javascript", "json", "jsonl", "ndjson", "sql", "toml", "typescript", "xml", "yaml"),
        *("x-javascript", "x-ndjson", "x-sh", "x-sql", "x-toml", "x-yaml"),
    )
)
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_NO_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-unknown"})
"""MIME types of unknown files: the name decides."""
_IMAGE_ENDINGS = frozenset({"png", "jpg", "jpeg", "gif", "webp"})
_TEXT_ENDINGS = frozenset(
    (
        *("txt", "text", "log", "md", "markdown", "rst", "tex", "csv", "tsv", "json", "jsonl", "ndjson", "xml", "html"),
        *("htm", "css", "yaml", "yml", "toml", "ini", "cfg", "conf", "diff", "patch", "sql", "sh", "py", "rb", "php"),
        *("js", "jsx", "ts", "tsx", "go", "rs", "java", "kt", "swift", "c", "h", "cc", "cpp", "hpp", "cs"),
    )
)
_DOCUMENT_TYPES = frozenset({"application/pdf", "application/x-pdf"})
_LONGEST_ENDING = 12


class FileKind(Enum):
    """Kind of a file in a model request."""

    IMAGE = auto()
    TEXT = auto()
    DOCUMENT = auto()
    OTHER = auto()


def kind_of(attachment: Attachment) -> FileKind:
    """Return the kind, by MIME type and name."""
    mime_type = attachment.mime_type.partition(";")[0].strip().lower()
    ending = _ending(attachment.name)
    if mime_type in _IMAGE_TYPES or (mime_type in _NO_TYPES and ending in _IMAGE_ENDINGS):
        return FileKind.IMAGE
    if mime_type in _DOCUMENT_TYPES or (mime_type in _NO_TYPES and ending == "pdf"):
        return FileKind.DOCUMENT
    if mime_type.startswith("text/") or mime_type in _TEXT_TYPES or mime_type.endswith(_TEXT_SUFFIXES):
        return FileKind.TEXT
    return FileKind.TEXT if mime_type in _NO_TYPES and ending in _TEXT_ENDINGS else FileKind.OTHER


def type_words(attachment: Attachment) -> str:
    """Return the type for users: the name's ending, else the MIME type."""
    ending = _ending(attachment.name)
    return f".{ending}" if ending else attachment.mime_type or "unknown"


def _ending(name: str) -> str:
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return ending if ending.isalnum() and len(ending) <= _LONGEST_ENDING else ""
