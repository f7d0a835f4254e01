"""A setting of servers is declared once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_one_row_brings_a_setting_to_every_surface(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.admin.one_more_setting", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    places = json.loads(finished.stdout)
    assert places.pop("bad file").startswith("Server 'slower': 'patience' has the wrong type or value.")
    assert places == {
        "added": 7,
        "rejected": "'70' is not valid. A whole number from 1 to 9.",
        "shown": "7",
        "form": "7",
        "file": 4,
        "imported": "4",
        "request": "5",
        "response": {
            "description": "how patient the bot is with it, 1 to 9",
            "title": "Patience",
            "type": "integer",
        },
    }
