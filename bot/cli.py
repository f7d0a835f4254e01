"""The command line: words to options, errors to one line, endings to exit codes (0 ok, 1 failed, 2 usage, 130
interrupted). What the commands do is in `bot.app`.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Annotated, Any

import typer

from bot import __version__
from bot.errors import CountersignError, SettingsError
from bot.settings import Settings, read_settings

app = typer.Typer(
    name="countersign",
    help="An assistant that works through MCP servers and acts only on the right person's signature.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
database_commands = typer.Typer(help="The database's schema.", no_args_is_help=True)
app.add_typer(database_commands, name="db")

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


class Approve(StrEnum):
    """What `--approve` may say."""

    ASK = "ask"
    NEVER = "never"
    READS = "reads"
    ALL = "all"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"countersign {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def chat(
    *,
    message: Annotated[str | None, typer.Option("-m", "--message", help="Ask once, print the answer, leave.")] = None,
    model: Annotated[str, typer.Option(help="demo, openai:NAME or anthropic:NAME.")] = "",
    approve: Annotated[
        Approve,
        typer.Option(help="Who signs calls that need it: ask the person here, never, reads only, or all of them."),
    ] = Approve.ASK,
    user: Annotated[str, typer.Option(help="Speak as somebody else, with that person's rights only.")] = "",
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation.")] = False,
    conversation: Annotated[str, typer.Option(help="Go on with this conversation.")] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line per event.")] = False,
    debug: Debug = False,
) -> None:
    """Talk in this terminal. Without a terminal, every line of standard input is a message."""
    if new and conversation:
        raise typer.BadParameter("--new and --conversation exclude each other.")
    if message is not None and not message.strip():
        raise typer.BadParameter("the message is empty.", param_hint="-m")

    async def talk(settings: Settings) -> int:
        from bot.app.chat import ChatOptions, chat  # noqa: PLC0415 - `--help` needs none of it
        from bot.platforms.console.clerk import ApproveMode  # noqa: PLC0415

        options = ChatOptions(message, model, ApproveMode(approve.value), user, new, conversation, json)
        return await chat(settings, options)

    _run(talk, debug=debug)


@app.command()
def run(
    *,
    only: Annotated[str, typer.Option(help="Some parts only: slack,discord,worker,web.")] = "",
    debug: Debug = False,
) -> None:
    """Run every part that is configured, until SIGTERM."""

    async def serve(settings: Settings) -> int:
        from bot.app.service import run as run_service  # noqa: PLC0415

        return await run_service(settings, frozenset(part.strip() for part in only.split(",") if part.strip()))

    _run(serve, debug=debug)


@database_commands.command("upgrade")
def upgrade(*, debug: Debug = False) -> None:
    """Bring the database to this release's schema."""

    async def migrate(settings: Settings) -> int:
        from bot.app.house import opened_database  # noqa: PLC0415
        from bot.storage import schema  # noqa: PLC0415

        async with opened_database(settings.model_copy(update={"auto_migrate": True})) as database:
            typer.echo(f"{database.path} is at {await schema.current(database)}")
        return 0

    _run(migrate, debug=debug)


@database_commands.command("current")
def current(*, debug: Debug = False) -> None:
    """Show the database's schema and this release's."""

    async def show(settings: Settings) -> int:
        from bot.app.house import opened_database  # noqa: PLC0415
        from bot.storage import schema  # noqa: PLC0415

        async with opened_database(settings.model_copy(update={"auto_migrate": False})) as database:
            found = await schema.current(database)
        typer.echo(f"database: {found or 'empty'}, this release: {schema.head()}")
        return 0 if found == schema.head() else 1

    _run(show, debug=debug)


def main() -> None:
    """The entry point."""
    app()


def _run(command: Callable[[Settings], Coroutine[Any, Any, int]], *, debug: bool) -> None:
    try:
        code = asyncio.run(command(read_settings()))
    except CountersignError as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"countersign: {error}", err=True)
        code = 2 if isinstance(error, SettingsError) else 1
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # the last line of defence: a person sees one line, not a traceback
        if debug:
            raise
        typer.echo(
            f"countersign: Something broke ({type(error).__name__}: {error}). Fix: run it with --debug to see where.",
            err=True,
        )
        code = 1
    sys.stdout.flush()
    raise typer.Exit(code)
