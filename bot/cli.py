"""The command line: words to options, errors to one line, endings to exit codes (0 ok, 1 failed, 2 usage, 130
interrupted). What the commands do is in `bot.app`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bot import __version__
from bot.errors import CountersignError, SettingsError
from bot.settings import Settings, read_settings

app = typer.Typer(
    name="countersign",
    help="An assistant that works through MCP servers and acts only on the right person's signature.",
    add_completion=False,
    # Plain help and one-line errors; loading rich for boxes would take longer than anything else `--help` does.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
database_commands = typer.Typer(help="The database: its schema, and a backup.", rich_markup_mode=None)
secret_commands = typer.Typer(help="Keys and stored secrets.", rich_markup_mode=None)
app.add_typer(database_commands, name="db")
audit_commands = typer.Typer(help="What was asked, signed, refused, run and changed.", rich_markup_mode=None)
app.add_typer(secret_commands, name="secrets")
app.add_typer(audit_commands, name="audit")
token_commands = typer.Typer(help="Who may use the HTTP API.", rich_markup_mode=None)
app.add_typer(token_commands, name="tokens")

FAILED, USAGE, INTERRUPTED = 1, 2, 130

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


class Approve(StrEnum):
    """What `--approve` may say."""

    ASK = "ask"
    NEVER = "never"
    READS = "reads"
    ALL = "all"


class Role(StrEnum):
    """What `--role` may say."""

    MEMBER = "member"
    APPROVER = "approver"
    ADMIN = "admin"


class Format(StrEnum):
    """What `--format` may say."""

    JSONL = "jsonl"
    CSV = "csv"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"countersign {__version__}")
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
    only: Annotated[str, typer.Option(metavar="PART,...", help="Some parts only: slack, discord, worker, web.")] = "",
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
        from bot.app.database import upgrade  # noqa: PLC0415

        typer.echo(f"The database has schema {await upgrade(settings)} now.")
        return 0

    _run(migrate, debug=debug)


@database_commands.command("current")
def current(*, debug: Debug = False) -> None:
    """Show the database's schema and this release's; exit code 1 if they differ."""

    async def show(settings: Settings) -> int:
        from bot.app.database import current  # noqa: PLC0415

        found, wanted = await current(settings)
        typer.echo(f"database: {found or 'empty'}, this release: {wanted}")
        return 0 if found == wanted else FAILED

    _run(show, debug=debug)


@database_commands.command("backup")
def backup(
    target: Annotated[Path, typer.Argument(metavar="PATH", help="The file to make. None is overwritten.")],
    *,
    debug: Debug = False,
) -> None:
    """Copy the SQLite database to a file, also beside a bot that runs."""

    async def copy(settings: Settings) -> int:
        from bot.app.database import back_up  # noqa: PLC0415

        made = await back_up(settings, target)
        typer.echo(f"{made.path} has everything up to now, {made.size:,} bytes. Its audit ends with {made.head}")
        return 0

    _run(copy, debug=debug)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def servers(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Also the servers of this workspace, such as slack:T123.")
    ] = "",
    debug: Debug = False,
) -> None:
    """Administer MCP servers: the verbs of `/mcp` in a chat, such as `list`, `show NAME`, `add NAME --url URL`."""
    words = ["help" if word in ("-h", "--help") else word for word in context.args]

    async def answer(settings: Settings) -> int:
        from bot.app.servers import administer  # noqa: PLC0415

        return await administer(settings, "mcp", words, as_json=as_json, workspace=workspace)

    _run(answer, debug=debug)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def usage(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Which workspace `workspace` means, such as slack:T123.")
    ] = "",
    debug: Debug = False,
) -> None:
    """Tokens and money that models took: the verbs of `/usage` in a chat, such as `all`, `workspace --by model`."""
    words = ["help" if word in ("-h", "--help") else word for word in context.args]

    async def answer(settings: Settings) -> int:
        from bot.app.servers import administer  # noqa: PLC0415

        return await administer(settings, "usage", words, as_json=as_json, workspace=workspace)

    _run(answer, debug=debug)


@secret_commands.command("generate-key")
def generate_key(*, debug: Debug = False) -> None:
    """Print a new key for MCP_ENCRYPTION_KEY."""

    async def generate(_settings: Settings) -> int:
        from bot.storage.secret_box import generate_key  # noqa: PLC0415

        typer.echo(generate_key())
        return 0

    _run(generate, debug=debug)


@secret_commands.command("set")
def set_secret(
    server: Annotated[str, typer.Argument(help="The server's name.")],
    slot: Annotated[str, typer.Argument(help="auth, env:NAME or header:NAME.")],
    *,
    debug: Debug = False,
) -> None:
    """Store a secret of a server, typed without an echo or read from standard input."""

    async def answer(settings: Settings) -> int:
        from bot.app.servers import administer  # noqa: PLC0415

        return await administer(settings, "mcp", ("secret", "set", server, slot), as_json=False)

    _run(answer, debug=debug)


@secret_commands.command("rotate")
def rotate(*, debug: Debug = False) -> None:
    """Encrypt every stored secret anew with the first key of MCP_ENCRYPTION_KEY."""

    async def encrypt_anew(settings: Settings) -> int:
        from bot.app.servers import rotate  # noqa: PLC0415

        resealed = await rotate(settings)
        many = "1 stored secret is" if resealed.count == 1 else f"{resealed.count} stored secrets are"
        typer.echo(f"{many} encrypted with the first key now.")
        for each in resealed.unopened:
            typer.echo(f"countersign: no key opens {each}. Fix: set it anew", err=True)
        return FAILED if resealed.unopened else 0

    _run(encrypt_anew, debug=debug)


@audit_commands.command("export")
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

    _run(write, debug=debug)


@audit_commands.command("verify")
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

    _run(check, debug=debug)


@audit_commands.command("head")
def head_of_audit(*, debug: Debug = False) -> None:
    """Print the number and hash of the last row: keep them elsewhere, rows cut off the end show only by them."""

    async def show(settings: Settings) -> int:
        from bot.app.audit import head  # noqa: PLC0415

        return await head(settings)

    _run(show, debug=debug)


@token_commands.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the audit and rules call the program: api:NAME.")],
    *,
    role: Annotated[Role, typer.Option(help="Talk to the bot; sign as well; administer as well.")],
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="The only workspace it is good for, such as slack:T123.")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is good: 12h, 90d, 52w.")] = "",
    debug: Debug = False,
) -> None:
    """Make a token and print it to standard output. It cannot be shown again."""

    async def make(settings: Settings) -> int:
        from bot.app.tokens import create  # noqa: PLC0415
        from bot.domain.callers import Role as Meant  # noqa: PLC0415

        return await create(settings, name, Meant(role.value), workspace, expires)

    _run(make, debug=debug)


@token_commands.command("list")
def list_tokens(
    *, as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False, debug: Debug = False
) -> None:
    """Show what is known of every token, those that are good for nothing any more included."""

    async def show(settings: Settings) -> int:
        from bot.app.tokens import show  # noqa: PLC0415

        return await show(settings, as_json=as_json)

    _run(show, debug=debug)


@token_commands.command("revoke")
def revoke_token(
    name: Annotated[str, typer.Argument(help="The token's name.")],
    *,
    debug: Debug = False,
) -> None:
    """Let a token be good for nothing, at once and in every process."""

    async def end(settings: Settings) -> int:
        from bot.app.tokens import revoke  # noqa: PLC0415

        return await revoke(settings, name)

    _run(end, debug=debug)


@app.command()
def doctor(
    *, as_json: Annotated[bool, typer.Option("--json", help="One JSON object a check.")] = False, debug: Debug = False
) -> None:
    """Check settings, database, model and every MCP server; exit code 1 if anything is broken."""

    async def examine(settings: Settings) -> int:
        from bot.app.doctor import examine_all  # noqa: PLC0415

        return await examine_all(settings, as_json=as_json)

    _run(examine, debug=debug)


def main() -> None:
    """The entry point."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "countersign"
        said = error.format_message().replace("Value error, ", "")
        _complain(f"{said}{'' if said.endswith(('.', '?')) else '.'} Fix: see `{command} --help`")
        code = USAGE
    sys.exit(code or 0)


def _run(command: Callable[[Settings], Coroutine[Any, Any, int]], *, debug: bool) -> None:
    try:
        code = asyncio.run(command(read_settings()))
    except CountersignError as error:
        if debug:
            traceback.print_exc()
        _complain(str(error))
        code = USAGE if isinstance(error, SettingsError) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read the answer has gone: nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as error:  # the last line of defence: a person sees one line, not a traceback
        if debug:
            raise
        _complain(f"Something broke ({type(error).__name__}: {error}). Fix: run it with --debug to see where")
        code = FAILED
    sys.stdout.flush()
    raise typer.Exit(code)


def _complain(problem: str) -> None:
    """One line, whatever the problem is made of."""
    visible = "".join(character if character.isprintable() else " " for character in problem)
    typer.echo(f"countersign: {' '.join(visible.split())}", err=True)
