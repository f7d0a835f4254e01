"""`db`: the schema, and a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.errors import FAILED, Debug, run_command
from bot.settings import Settings

commands = typer.Typer(help="The database: its schema, and a backup.", rich_markup_mode=None)


@commands.command("upgrade")
def upgrade(*, debug: Debug = False) -> None:
    """Bring the database to this release's schema."""

    async def migrate(settings: Settings) -> int:
        from bot.app.database import upgrade  # noqa: PLC0415

        typer.echo(f"The database has schema {await upgrade(settings)} now.")
        return 0

    run_command(migrate, debug=debug)


@commands.command("current")
def current(*, debug: Debug = False) -> None:
    """Show the database's schema and this release's; exit code 1 if they differ."""

    async def show(settings: Settings) -> int:
        from bot.app.database import current  # noqa: PLC0415

        version, wanted = await current(settings)
        typer.echo(f"database: {version or 'empty'}, this release: {wanted}")
        return 0 if version == wanted else FAILED

    run_command(show, debug=debug)


@commands.command("backup")
def backup(
    target: Annotated[Path, typer.Argument(metavar="PATH", help="The file to make. None is overwritten.")],
    *,
    debug: Debug = False,
) -> None:
    """Copy the SQLite database to a file, also beside a bot that runs."""

    async def copy(settings: Settings) -> int:
        from bot.app.database import back_up  # noqa: PLC0415

        backup = await back_up(settings, target)
        typer.echo(f"{backup.path} has everything up to now, {backup.size:,} bytes. Its audit ends with {backup.head}")
        return 0

    run_command(copy, debug=debug)
