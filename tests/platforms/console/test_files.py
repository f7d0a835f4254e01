"""Files in tool results, at the terminal: saved to disk, and named in the conversation."""

from __future__ import annotations

import dataclasses
import io
import stat
from pathlib import Path

from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.console.console import ConsoleSurface
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.plain_output import PlainStream
from bot.platforms.console.turn_tracker import TurnTracker
from tests.fakes.stored_files import with_kept_files
from tests.platforms.console.scripted_engine import a_call, a_turn


def with_files(*parts: ImagePart | FilePart) -> TurnView:
    step = a_call(1, StepStatus.DONE)
    step = dataclasses.replace(step, result=ToolResult("c", parts))
    return with_kept_files(TurnView(a_turn("t1", "show"), (step,), 1))


async def draw(surface: ConsoleSurface, view: TurnView, refs: dict[str, str]) -> None:
    async for drawn in surface.deliver(view, refs):
        refs[drawn.slot] = drawn.ref


def a_surface(folder: Path, errors: io.StringIO) -> ConsoleSurface:
    look = ConsoleTheme(colour=False, unicode=False)
    return ConsoleSurface(LocalUser("ana"), TurnTracker(), PlainStream(io.StringIO(), errors, look), folder)


def on_disk(path: Path) -> tuple[bytes, int, int]:
    return path.read_bytes(), stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)


def put_in_the_way(path: Path) -> None:
    path.write_text("in the way")


async def test_files_are_written_once_for_the_persons_eyes_alone_and_named(tmp_path: Path) -> None:
    folder, errors, refs = tmp_path / "files", io.StringIO(), dict[str, str]()
    view = with_files(
        ImagePart(b"png", "image/png", "cat.png"), FilePart(b"{}", "application/json", "../../.a\x1b.json")
    )
    surface = a_surface(folder, errors)
    await draw(surface, view, refs)
    await draw(surface, view, refs)
    cat, other = Path(refs["file-1-0"]), Path(refs["file-1-1"])
    assert {cat.parent, other.parent} == {folder}
    assert [on_disk(cat), on_disk(other)] == [(b"png", 0o600, 0o700), (b"{}", 0o600, 0o700)]
    assert errors.getvalue().count(f"cat.png is in {cat}\n") == 1
    assert "\x1b" not in errors.getvalue()


async def test_a_file_that_cannot_be_written_costs_the_turn_nothing(tmp_path: Path) -> None:
    folder, errors, refs = tmp_path / "files", io.StringIO(), dict[str, str]()
    put_in_the_way(folder)
    view = with_files(ImagePart(b"png", "image/png", "cat.png"))
    ended = dataclasses.replace(view, turn=a_turn("t1", "show", status=TurnStatus.DONE))
    await draw(a_surface(folder, errors), ended, refs)
    assert refs == {"file-1-0": "left out", "reply": "complete"}
    assert "cat.png could not be saved" in errors.getvalue()
