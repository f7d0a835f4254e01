"""`servers` and `usage`, the commands of chats in a shell; `secrets`; `tokens` of the HTTP API."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bot.cli.execution import FAILED, Debug, run_command
from bot.domain.api_clients import ApiRole
from bot.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]

WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings: `bot.commands` parses the arguments."""
_PASSWORD_BYTES = 32


class VerbatimCommand(TyperCommand):
    """Command that passes `--` and the words after it on unchanged: they are a command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before `--`."""
        at = args.index("--") if "--" in args else len(args)
        super().parse_args(ctx, args[:at])
        ctx.args += args[at:]
        return list(ctx.args)


def servers(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Also the servers of this workspace, such as slack:T123.")
    ] = "",
    debug: Debug = False,
) -> None:
    """Administer MCP servers: the verbs of `/mcp` in a chat, such as `list`, `show NAME`, `add NAME URL`,
    `add NAME -- npx -y PACKAGE`.
    """
    _say("mcp", context.args, as_json=as_json, workspace=workspace, debug=debug)


def usage(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Which workspace `workspace` means, such as slack:T123.")
    ] = "",
    debug: Debug = False,
) -> None:
    """Tokens and money used by models: the verbs of `/usage` in a chat, such as `all`, `workspace --by model`."""
    _say("usage", context.args, as_json=as_json, workspace=workspace, debug=debug)


def _say(group: str, arguments: Sequence[str], *, as_json: bool, workspace: str, debug: bool) -> None:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = ["help" if word in ("-h", "--help") else word for word in arguments[:end]] + [*arguments[end:]]

    async def answer(settings: Settings) -> int:
        from bot.app.administration import administer  # noqa: PLC0415

        return await administer(settings, group, words, as_json=as_json, workspace=workspace)

    run_command(answer, debug=debug)


secret_commands = typer.Typer(help="Keys and stored secrets.", rich_markup_mode=None)


@secret_commands.command("generate-key")
def generate_key(*, debug: Debug = False) -> None:
    """Print a new key for MCP_ENCRYPTION_KEY."""

    async def generate(_settings: Settings) -> int:
        from bot.storage.encryption import generate_key  # noqa: PLC0415

        typer.echo(generate_key())
        return 0

    run_command(generate, debug=debug)


@secret_commands.command("generate-password")
def generate_password(*, debug: Debug = False) -> None:
    """Print a new random value for ENCRYPTION_MASTER_PASSWORD or ADMIN_API_TOKEN."""

    async def generate(_settings: Settings) -> int:
        typer.echo(secrets.token_urlsafe(_PASSWORD_BYTES))
        return 0

    run_command(generate, debug=debug)


@secret_commands.command("set")
def set_secret(
    server: Annotated[str, typer.Argument(help="The server's name.")],
    slot: Annotated[str, typer.Argument(help="auth, env:NAME or header:NAME.")],
    *,
    debug: Debug = False,
) -> None:
    """Store a secret of a server, typed without echo or read from standard input."""

    async def answer(settings: Settings) -> int:
        from bot.app.administration import administer  # noqa: PLC0415

        return await administer(settings, "mcp", ("secret", "set", server, slot), as_json=False)

    run_command(answer, debug=debug)


@secret_commands.command("rotate")
def rotate(*, debug: Debug = False) -> None:
    """Encrypt every stored secret again with the first key of MCP_ENCRYPTION_KEY."""

    async def encrypt_anew(settings: Settings) -> int:
        from bot.app.administration import rotate  # noqa: PLC0415

        resealed = await rotate(settings)
        many = "1 stored secret is" if resealed.count == 1 else f"{resealed.count} stored secrets are"
        typer.echo(f"{many} encrypted with the first key now.")
        for secret in resealed.unopened:
            typer.echo(f"countersign: no key opens {secret}. Fix: set it again", err=True)
        return FAILED if resealed.unopened else 0

    run_command(encrypt_anew, debug=debug)


token_commands = typer.Typer(help="Who may use the HTTP API.", rich_markup_mode=None)


@token_commands.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the audit and rules call the program: api:NAME.")],
    *,
    role: Annotated[
        ApiRole, typer.Option(help="member: talk to the bot; approver: approve calls too; admin: administer too.")
    ],
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="The only workspace it is good for, such as slack:T123.")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is good: 12h, 90d, 52w.")] = "",
    debug: Debug = False,
) -> None:
    """Create a token and print it to standard output. It cannot be shown again."""

    async def make(settings: Settings) -> int:
        from bot.app.administration import create  # noqa: PLC0415

        return await create(settings, name, role, workspace, expires)

    run_command(make, debug=debug)


@token_commands.command("list")
def list_tokens(
    *, as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False, debug: Debug = False
) -> None:
    """List all tokens, including expired and revoked ones."""

    async def show(settings: Settings) -> int:
        from bot.app.administration import show  # noqa: PLC0415

        return await show(settings, as_json=as_json)

    run_command(show, debug=debug)


@token_commands.command("revoke")
def revoke_token(
    name: Annotated[str, typer.Argument(help="The token's name.")],
    *,
    debug: Debug = False,
) -> None:
    """Revoke a token, at once and in every process."""

    async def end(settings: Settings) -> int:
        from bot.app.administration import revoke  # noqa: PLC0415

        return await revoke(settings, name)

    run_command(end, debug=debug)
