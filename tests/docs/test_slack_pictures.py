"""The pictures of Slack show every kind of message of the program, and load nothing from elsewhere."""

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
    """`docs/pictures/slack.py`, which is a script and in no package."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("slack_pictures", PICTURES / "slack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there(drawing: ModuleType) -> None:
    names = [*drawing.pictures(), *(f"{name}-ja" for name in drawing.JAPANESE)]
    assert {f"slack-{name}.png" for name in names} == {path.name for path in PICTURES.glob("slack-*.png")}


def test_nothing_is_loaded_from_elsewhere_and_no_secret_is_shown(drawing: ModuleType) -> None:
    for document in drawing.pictures().values():
        assert not re.search(r"<(img|link|script|iframe)|url\(|@import", document)
        assert "hunter2" not in document
