"""Documents in HTML as pictures, taken by Chromium, in the fonts of the platforms.

Slack's clients use Lato. Discord's own font is not free: Noto Sans is the one that its clients fall back to. Emoji are
Discord's (Twemoji). The fonts come from npm at the first use.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FONTS = Path(__file__).resolve().parents[2] / ".venv" / "fonts"
SCALE = 2
"""Pixels of a picture for each pixel of a page, for sharp letters on the screens of today."""
STYLES = {
    "@fontsource/lato@5": ("400", "400-italic", "700", "700-italic", "900"),
    "@fontsource/noto-sans@5": ("400", "400-italic", "500", "600", "700", "700-italic"),
    "@fontsource/noto-sans-jp@5": ("400", "700"),
    "@fontsource/roboto-mono@5": ("400", "700"),
    "twemoji-colr-font@15": ("twemoji",),
}
"""Packages of fonts, and their stylesheets that the platforms' texts use."""


def photograph(document: str, path: Path, width: int) -> None:
    """Draw a document of this width on as much paper as it needs."""
    with tempfile.TemporaryDirectory(prefix="countersign-picture-") as folder:
        source = Path(folder) / "page.html"
        measure = """<script>
          addEventListener("load", () => document.fonts.ready.then(() => {
            document.title = Math.ceil(document.body.getBoundingClientRect().height) }))
        </script>"""
        source.write_text("".join(stylesheets(FONTS.as_uri())) + document + measure, encoding="utf-8")
        address = source.as_uri()
        seen = _browse(folder, "--dump-dom", f"--window-size={width},10", address)
        height = re.search(r"<title>(\d+)</title>", seen)
        if height is None:
            raise SystemExit("Chromium did not say how tall the page is.")
        _browse(folder, f"--screenshot={path}", f"--window-size={width},{height[1]}", address)


def stylesheets(address: str) -> Iterable[str]:
    """Yield links to the stylesheets of the fonts, whose folder has this address."""
    for package, names in STYLES.items():
        folder = FONTS / re.sub(r"\W+", "-", package)
        if not folder.exists():
            _install(package, folder)
        for name in names:
            yield f'<link rel="stylesheet" href="{address}/{folder.name}/package/{name}.css">'


def _install(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("The pictures of Slack and Discord need npm for their fonts: install it, or leave them.")
    with tempfile.TemporaryDirectory(prefix="countersign-font-") as download:
        subprocess.run((npm, "pack", "--silent", package), check=True, capture_output=True, cwd=download, timeout=300)
        (archive,) = Path(download).glob("*.tgz")
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")


def _browse(folder: str, *arguments: str) -> str:
    """Run Chromium with its profile in this folder, and return its output."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit("The pictures of Slack and Discord need Chromium: install it, or leave them as they are.")
    fixed = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        "--virtual-time-budget=10000",
        f"--force-device-scale-factor={SCALE}",
        f"--user-data-dir={folder}/profile",
    )
    run = subprocess.run((program, *fixed, *arguments), check=True, capture_output=True, text=True, timeout=60)
    return run.stdout
