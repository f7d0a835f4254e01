"""The pictures of the web page show every state of the page, and load nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`docs/pictures/web.py`, which is a script and in no package."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("web_pictures", PICTURES / "web.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "web_pictures", module)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there(drawing: ModuleType) -> None:
    assert {f"web-{name}.png" for name in drawing.pictures()} == {path.name for path in PICTURES.glob("web-*.png")}


def test_the_guide_of_the_console_shows_every_picture_of_it() -> None:
    shown = set(re.findall(r"pictures/(console-[a-z-]+\.png)", (PICTURES.parent / "console.md").read_text("utf-8")))
    assert shown == {path.name for path in PICTURES.glob("console-*.png")}


def test_nothing_is_loaded_from_elsewhere(drawing: ModuleType) -> None:
    for picture in drawing.pictures().values():
        for document in picture.documents:
            assert not re.search(r"<(img|link|script|iframe)|url\(|@import", document)
