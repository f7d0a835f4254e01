"""`db`: the schema, a backup, and the data of one person."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.execution import FAILED, USAGE, Debug, command, print_error, run_command
from bot.settings import Settings

commands = typer.Typer(help="The database: its schema, a backup, and the data of one person.", rich_markup_mode=None)


@commands.command("upgrade")
@command
async def upgrade(settings: Settings) -> int:
    """Bring the database to this release's schema."""
    from bot.app.database import upgrade  # noqa: PLC0415

    typer.echo(f"The database has schema {await upgrade(settings)} now.")
    return 0


@commands.command("current")
@command
async def current(settings: Settings) -> int:
    """Show the database's schema and this release's; exit code 1 if they differ."""
    from bot.app.database import current  # noqa: PLC0415

    version, wanted = await current(settings)
    typer.echo(f"database: {version or 'empty'}, this release: {wanted}")
    return 0 if version == wanted else FAILED


@commands.command("backup")
@command
async def backup(
    settings: Settings,
    target: Annotated[Path, typer.Argument(metavar="PATH", help="The file to make. None is overwritten.")],
) -> int:
    """Copy the SQLite database to a file, also beside a bot that runs."""
    from bot.app.database import back_up  # noqa: PLC0415

    head = await back_up(settings, target)
    typer.echo(f"{target} has everything up to now, {target.stat().st_size:,} bytes. Its audit ends with {head}")
    return 0


Person = Annotated[str, typer.Argument(metavar="PLATFORM:ID", help="The person, such as slack:U0123ABCD or api:ci.")]


@commands.command("export-person")
@command
async def export_person(
    settings: Settings,
    person: Person,
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The file to make instead of standard output.")
    ] = None,
) -> int:
    """Write everything that is stored about one person as JSON; no secrets."""
    from bot.app.database import export_person, save_export  # noqa: PLC0415

    text = await export_person(settings, person)
    if output is None:
        typer.echo(text)
    else:
        save_export(text, output)
        typer.echo(f"{output} has everything that is stored about {person}.", err=True)
    return 0


@commands.command("forget")
def forget(
    person: Person,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Debug = False,
) -> None:
    """Delete what one person said, was answered and got from tools, and their name, feedback and sign-ins.

    Ids stay in the audit, and numbers in the usage. Turns that run or wait are left.
    """
    if not yes and not sys.stdin.isatty():
        print_error("Nobody can be asked here. Fix: add --yes")
        raise typer.Exit(USAGE)
    if not yes and not typer.confirm(f"Delete what is stored about {person}? This cannot be undone.", err=True):
        raise typer.Exit(FAILED)

    async def delete(settings: Settings) -> int:
        from bot.app.database import IN_USE, forget_person  # noqa: PLC0415

        turns, unfinished, left = await forget_person(settings, person)
        typer.echo(f"The content of {_turn_count(turns)} of {person} is deleted.")
        if unfinished:
            typer.echo(
                f"{_turn_count(unfinished)} of {person} still waiting or running. "
                "Fix: stop what runs, and run this again.",
                err=True,
            )
        if left:
            typer.echo(f"{left}.", err=True)
        return FAILED if unfinished or left == IN_USE else 0

    run_command(delete, debug=debug)


def _turn_count(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"
