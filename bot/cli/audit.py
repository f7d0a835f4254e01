"""`audit`: export, verify, seal and print the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bot.cli.execution import Debug, run_command
from bot.settings import Settings

commands = typer.Typer(help="Every question, approval, rejection, call and change.", rich_markup_mode=None)


@commands.command("export")
def export_audit(
    *,
    written_as: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="JSON Lines, or CSV for a spreadsheet.")
    ] = "jsonl",
    since: Annotated[str, typer.Option(metavar="TIME", help="From then on: 2026-08-31, 2026-08-31T14:30, 7d.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before then.")] = "",
    debug: Debug = False,
) -> None:
    """Write the audit's rows to standard output, oldest first. Times are UTC."""

    async def write(settings: Settings) -> int:
        from bot.app.audit import export  # noqa: PLC0415

        return await export(settings, since, until, as_csv=written_as == "csv")

    run_command(write, debug=debug)


@commands.command("verify")
def verify_audit(
    *,
    head: Annotated[
        str, typer.Option(metavar="NUMBER:HASH", help="A row that was noted before, by `countersign audit head`.")
    ] = "",
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another file or log with checkpoints in it; may be given several times."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Compare the audit with its keys, its checkpoints and the turns it is about; exit code 1 if something is wrong."""

    async def check(settings: Settings) -> int:
        from bot.app.audit import verify  # noqa: PLC0415

        return await verify(settings, head, checkpoints or (), as_json=as_json)

    run_command(check, debug=debug)


@commands.command("seal")
def seal_audit(
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the rows before can be trusted.")],
    debug: Debug = False,
) -> None:
    """Vouch for all rows and checkpoints before now: after a restored backup, or before an old key is taken away."""

    async def add(settings: Settings) -> int:
        from bot.app.audit import seal  # noqa: PLC0415

        return await seal(settings, reason)

    run_command(add, debug=debug)


@commands.command("head")
def head_of_audit(*, debug: Debug = False) -> None:
    """Print the number and hash of the last row, to be noted elsewhere."""

    async def show(settings: Settings) -> int:
        from bot.app.audit import head  # noqa: PLC0415

        return await head(settings)

    run_command(show, debug=debug)
