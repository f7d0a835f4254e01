"""The pictures of Discord show every kind of message of the program, and load nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


async def test_every_picture_is_there_loads_nothing_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is a script and in no package.
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("discord_pictures", PICTURES / "discord_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "discord_pictures", module)
    spec.loader.exec_module(module)
    documents = await module.pictures()
    assert {f"discord-{name}.png" for name in documents} == {path.name for path in PICTURES.glob("discord-*.png")}
    for document in documents.values():
        assert not re.search(r"<(img|link|script|iframe)|url\(|@import", document)
        assert "hunter2" not in document
