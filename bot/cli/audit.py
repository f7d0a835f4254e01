"""`audit`: what was asked, signed, refused, run and changed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from bot.cli.running import Debug, run_command
from bot.settings import Settings


class Format(StrEnum):
    """What `--format` may say."""

    JSONL = "jsonl"
    CSV = "csv"


commands = typer.Typer(help="What was asked, signed, refused, run and changed.", rich_markup_mode=None)


@commands.command("export")
def export_audit(
    *,
    written_as: Annotated[
        Format, typer.Option("--format", help="JSON Lines, or CSV for a spreadsheet.")
    ] = Format.JSONL,
    since: Annotated[str, typer.Option(metavar="TIME", help="From then on: 2026-08-31, 2026-08-31T14:30, 7d.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before then.")] = "",
    debug: Debug = False,
) -> None:
    """Write the audit's rows to standard output, oldest first. Times are UTC."""

    async def write(settings: Settings) -> int:
        from bot.app.audit import Format as Written  # noqa: PLC0415
        from bot.app.audit import export  # noqa: PLC0415

        return await export(settings, Written(written_as.value), since, until)

    run_command(write, debug=debug)


@commands.command("verify")
def verify_audit(
    *,
    head: Annotated[
        str, typer.Option(metavar="NUMBER:HASH", help="A row that was noted before, by `countersign audit head`.")
    ] = "",
    debug: Debug = False,
) -> None:
    """See whether every row is what it was; exit code 1 and the row's number if one is not."""

    async def check(settings: Settings) -> int:
        from bot.app.audit import verify  # noqa: PLC0415

        return await verify(settings, head)

    run_command(check, debug=debug)


@commands.command("head")
def head_of_audit(*, debug: Debug = False) -> None:
    """Print the number and hash of the last row: keep them elsewhere, rows cut off the end show only by them."""

    async def show(settings: Settings) -> int:
        from bot.app.audit import head  # noqa: PLC0415

        return await head(settings)

    run_command(show, debug=debug)
