"""Pictures of the terminal chat for the documents: the chat on a real pseudo-terminal, with the bundled servers.

    make pictures

Everything in them was written by the program. A few things are new each time: the days of the forecast (sample data is
dated from today), the number of the approval, the id of the server that was added.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.fakes.terminal import ProgramOnTerminal  # noqa: E402 - found through the line above

COLUMNS, ROWS = 96, 80
FONTS = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(214, 220, 227),
    normal=[
        (72, 79, 88),
        (255, 123, 114),
        (94, 201, 122),
        (224, 175, 84),
        (121, 184, 255),
        (210, 168, 255),
        (86, 212, 221),
        (214, 220, 227),
    ],
)
COLOURS = {"brown": "yellow"}
"""Names of colors in rich that differ from those in pyte, by pyte's name."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A file's name, its alternative text, and the scene before its screen is taken."""

    name: str
    says: str
    scene: Callable[[ProgramOnTerminal], Awaitable[None]]


async def main() -> None:
    """Run the chat once for each picture, take its screen, write it down."""
    for picture in PICTURES:
        with tempfile.TemporaryDirectory(prefix="countersign-picture-") as folder:
            screen = await taken(picture, Path(folder))
        path = Path(__file__).with_name(f"{picture.name}.svg")
        path.write_text(svg(screen, picture), encoding="utf-8")
        print(path.relative_to(PROJECT))


async def taken(picture: Picture, folder: Path) -> pyte.Screen:
    """Run the chat, and return the screen at the end of the scene."""
    command = ("bot", "chat", "--model", "demo")
    shutil.copytree(PROJECT / "config", folder / "config")
    async with ProgramOnTerminal(command, folder, environment(folder), columns=COLUMNS, rows=ROWS) as program:
        await picture.scene(program)
        return seen(program.raw)


async def chat(program: ProgramOnTerminal) -> None:
    """Chat until a card waits for its key."""
    await program.asks("Do I need an umbrella in Sapporo tomorrow?")
    await program.shows("no AI")
    await program.asks("Please note: the office closes early on Friday")
    await program.shows("[y] once")


async def servers(program: ProgramOnTerminal) -> None:
    """Add a server, and wait until its problems are shown."""
    await program.asks("/mcp add wiki --url https://wiki.example.com/mcp --secret env:MCP_SECRET_WIKI --no-verify")
    await program.shows("wiki is added")
    await program.asks("/mcp list")
    await program.shows("● weather")
    await program.asks("/mcp show wiki")
    await program.shows("/mcp remove wiki")
    await program.prompts()


PICTURES = (
    Picture(
        "chat",
        "Countersign in a terminal: a question about the weather is answered, saving a note waits for a signature.",
        chat,
    ),
    Picture(
        "servers",
        "A server is added, /mcp list shows all servers and how they stand, /mcp show tells everything about one.",
        servers,
    ),
)


def environment(folder: Path) -> dict[str, str]:
    """Return the settings of an ordinary terminal and the bundled configuration, without this machine's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "LOGNAME": "you",
        "DATABASE_URL": f"sqlite:///{folder}/chat.db",
        "NOTES_FILE": str(folder / "notes.json"),
        "WEATHER_SAMPLE": "always",
    }


class DimmingScreen(pyte.Screen):
    """A screen with dim text, which pyte lacks: it is stored as blinking, which the program never uses."""

    def select_graphic_rendition(self, *attributes: int, **options: Any) -> None:
        super().select_graphic_rendition(*(5 if attribute == 2 else attribute for attribute in attributes), **options)


def seen(written: bytes) -> pyte.Screen:
    """Return the screen after a program has written these bytes."""
    screen = DimmingScreen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(written)
    return screen


def svg(screen: pyte.Screen, picture: Picture) -> str:
    """Return the screen as a self-contained SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    for y in range(used_rows(screen) + 1):
        console.print(Text.assemble(*runs(screen.buffer[y])), no_wrap=True, overflow="crop", crop=False)
    drawn = console.export_svg(
        title="countersign", theme=THEME, code_format=template(picture.says), unique_id=picture.name
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines() if line.strip()) + "\n"


def used_rows(screen: pyte.Screen) -> int:
    """Return the number of rows down to the last that is not empty."""
    return max(y for y, line in enumerate(screen.display, start=1) if line.strip())


def runs(row: Any) -> Iterator[tuple[str, Style]]:
    """Yield a row in pieces of one style. Wide letters are separate pieces, so that each is at its column."""
    cells = [row[x] for x in range(COLUMNS)]
    for (style, wide), run in groupby(cells, key=lambda cell: (style_of(cell), cell_len(cell.data) != 1)):
        text = "".join(cell.data for cell in run)
        yield from ((letter, style) for letter in text) if wide else [(text, style)]


def style_of(cell: Any) -> Style:
    """Return the style of a cell."""
    return Style(
        color=None if cell.fg == "default" else COLOURS.get(cell.fg, cell.fg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
        dim=cell.blink,
    )


def template(says: str) -> str:
    """Return rich's template without fonts from the network, with an alternative text."""
    local = re.sub(r"@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    local = re.sub(r"\s*<!-- .*? -->", "", local).replace("Fira Code, monospace", FONTS).replace("arial", "sans-serif")
    return local.replace("<svg ", f'<svg role="img" aria-label="{says}" ', 1)


if __name__ == "__main__":
    asyncio.run(main())
