"""`audit`: export, verify, seal and print the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bot.cli.execution import command
from bot.settings import Settings

commands = typer.Typer(help="Every question, approval, rejection, call and change.", rich_markup_mode=None)


@commands.command("export")
@command
async def export_audit(
    settings: Settings,
    *,
    written_as: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="JSON Lines, or CSV for a spreadsheet.")
    ] = "jsonl",
    since: Annotated[str, typer.Option(metavar="TIME", help="From then on: 2026-08-31, 2026-08-31T14:30, 7d.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Before then.")] = "",
) -> int:
    """Write the audit's rows to standard output, oldest first. Times are UTC."""
    from bot.app.audit import export  # noqa: PLC0415

    return await export(settings, since, until, as_csv=written_as == "csv")


@commands.command("verify")
@command
async def verify_audit(
    settings: Settings,
    *,
    head: Annotated[
        str, typer.Option(metavar="NUMBER:HASH", help="A row that was noted before, by `countersign audit head`.")
    ] = "",
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another file or log with checkpoints in it; may be given several times."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as one JSON object.")] = False,
) -> int:
    """Compare the audit with its keys, its checkpoints and the turns it is about; exit code 1 if something is wrong."""
    from bot.app.audit import verify  # noqa: PLC0415

    return await verify(settings, head, checkpoints or (), as_json=as_json)


@commands.command("seal")
@command
async def seal_audit(
    settings: Settings,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the rows before can be trusted.")],
) -> int:
    """Vouch for all rows and checkpoints before now: after a restored backup, or before an old key is taken away."""
    from bot.app.audit import seal  # noqa: PLC0415

    return await seal(settings, reason)


@commands.command("head")
@command
async def head_of_audit(settings: Settings) -> int:
    """Print the number and hash of the last row, to be noted elsewhere."""
    from bot.app.audit import head  # noqa: PLC0415

    return await head(settings)
