"""Documents in HTML as pictures, taken by Chromium, which has to be installed.

For `slack.py` and `discord_pictures.py`, which know what stands in them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_DOTS = {"🟢": "#2eb67d", "🟠": "#e8912d", "🔴": "#e01e5a", "🟡": "#ecb22e", "⚪": "#d0d0d0"}
_MARKS = {"✅": '<b style="color:#2eb67d">✔</b>', "⚠": '<b style="color:#c77700">⚠</b>'}


def photograph(document: str, path: Path, width: int) -> None:
    """Draw a document of this width on as much paper as it needs."""
    with tempfile.TemporaryDirectory(prefix="countersign-picture-") as folder:
        source = Path(folder) / "page.html"
        measure = "<script>document.title = document.documentElement.scrollHeight</script>"
        source.write_text(document + measure, encoding="utf-8")
        address = source.as_uri()
        seen = _browse(folder, "--dump-dom", f"--window-size={width},10", address)
        height = re.search(r"<title>(\d+)</title>", seen)
        if height is None:
            raise SystemExit("Chromium did not say how tall the page is.")
        _browse(folder, f"--screenshot={path}", f"--window-size={width},{height[1]}", address)


def marked(text: str) -> str:
    """Text with its coloured signs drawn, which not every machine has letters for."""
    text = escape(text)
    for sign, colour in _DOTS.items():
        text = text.replace(sign, f'<span class="dot" style="background:{colour}"></span>')
    for sign, drawn in _MARKS.items():
        text = text.replace(sign, drawn)
    return text


def _browse(folder: str, *arguments: str) -> str:
    """Run Chromium on nothing but this folder; what it prints."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit("The pictures of Slack and Discord need Chromium: install it, or leave them as they are.")
    fixed = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    )
    run = subprocess.run((program, *fixed, *arguments), check=True, capture_output=True, text=True, timeout=60)
    return run.stdout
