"""File types by content, independent of the file name."""

from __future__ import annotations

import pytest

from bot.domain.messages import BINARY, detect_image_type, detect_media_type


@pytest.mark.parametrize(
    ("data", "claimed", "found"),
    [
        (b"\x89PNG\r\n", "image/png", "image/png"),
        (b"\x89PNG\r\n", "text/html", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpg", "image/jpeg"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/x-wav", "audio/wav"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp; q=1", "image/webp"),
        (b"PK\x03\x04..", "application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
        (b"PK\x03\x04..", "application/pdf", "application/zip"),
        (b"a,b\n", "text/csv", "text/csv"),
        (b"a\0b", "text/plain", BINARY),
        (b"\xff\xfe", "text/plain", BINARY),
        (b"{}", "application/json", "application/json"),
        (b"plain", "application/pdf", BINARY),
        (b"<svg/>", "image/png", BINARY),
        (b"MZ\x90", "application/json", BINARY),
        (b"\x7fELF", "audio/wav", BINARY),
        (b"#!/bin/sh", "text/plain", BINARY),
        (b"x", "", BINARY),
        (b"x", "a b/c\n", BINARY),
    ],
)
def test_the_type_of_a_file_follows_its_first_bytes(data: bytes, claimed: str, found: str) -> None:
    assert detect_media_type(data, claimed) == found


def test_models_see_four_kinds_of_images() -> None:
    seen = {detect_image_type(data) for data in (b"\x89PNG", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBP")}
    assert seen == {"image/png", "image/jpeg", "image/gif", "image/webp"}
    assert {detect_image_type(data) for data in (b"", b"BM", b"<svg/>", b"RIFF\0\0\0\0WAVE")} == {""}
