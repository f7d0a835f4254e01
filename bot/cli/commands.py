"""The commands. They are implemented in `bot.app`, which each loads when it runs."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Annotated

import typer

from bot import __version__
from bot.cli import audit, config, database, gateway
from bot.cli.admin import WORDS, VerbatimCommand, secret_commands, servers, token_commands, usage
from bot.cli.chat import chat, doctor, run
from bot.cli.execution import USAGE
from bot.cli.setup import setup

app = typer.Typer(
    name="countersign",
    help="An assistant that works through MCP servers and acts only on the right person's signature.",
    add_completion=False,
    # Plain help and one-line errors; loading rich for boxes would take longer than anything else `--help` does.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(database.commands, name="db")
app.add_typer(secret_commands, name="secrets")
app.add_typer(audit.commands, name="audit")
app.add_typer(token_commands, name="tokens")
app.add_typer(config.commands, name="config")
app.add_typer(gateway.app)
app.command()(chat)
app.command()(run)
app.command(cls=VerbatimCommand, context_settings=WORDS)(servers)
app.command(context_settings=WORDS)(usage)
app.command()(doctor)
app.command()(setup)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"countersign {__version__} (Python {platform.python_version()}, mcp {version('mcp')})")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)
