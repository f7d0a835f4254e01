"""`servers` and `usage`, the commands of chats in a shell; `secrets`; `tokens` of the HTTP API."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bot.cli.execution import FAILED, command
from bot.domain.api_clients import ApiRole
from bot.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]

WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings: `bot.admin` parses the arguments."""
_PASSWORD_BYTES = 32


class VerbatimCommand(TyperCommand):
    """Command that passes `--` and the words after it on unchanged: they are a command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before `--`."""
        at = args.index("--") if "--" in args else len(args)
        super().parse_args(ctx, args[:at])
        ctx.args += args[at:]
        return list(ctx.args)


@command
async def servers(
    settings: Settings,
    context: typer.Context,
    *,
    as_json: AsJson = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Also the servers of this workspace, such as slack:T123.")
    ] = "",
) -> int:
    """Administer MCP servers: the verbs of `/mcp` in a chat, such as `list`, `show NAME`, `add NAME URL`,
    `add NAME -- npx -y PACKAGE`.
    """
    return await _say(settings, "mcp", context.args, as_json=as_json, workspace=workspace)


@command
async def usage(
    settings: Settings,
    context: typer.Context,
    *,
    as_json: AsJson = False,
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="Which workspace `workspace` means, such as slack:T123.")
    ] = "",
) -> int:
    """Tokens and money used by models: the verbs of `/usage` in a chat, such as `all`, `workspace --by model`."""
    return await _say(settings, "usage", context.args, as_json=as_json, workspace=workspace)


async def _say(settings: Settings, group: str, arguments: Sequence[str], *, as_json: bool, workspace: str) -> int:
    from bot.app.administration import administer  # noqa: PLC0415

    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = ["help" if word in ("-h", "--help") else word for word in arguments[:end]] + [*arguments[end:]]
    return await administer(settings, group, words, as_json=as_json, workspace=workspace)


secret_commands = typer.Typer(help="Keys and stored secrets.", rich_markup_mode=None)


@secret_commands.command("generate-key")
@command
async def generate_key(_settings: Settings) -> int:
    """Print a new key for MCP_ENCRYPTION_KEY."""
    from bot.storage.encryption import generate_key  # noqa: PLC0415

    typer.echo(generate_key())
    return 0


@secret_commands.command("generate-password")
@command
async def generate_password(_settings: Settings) -> int:
    """Print a new random value for ENCRYPTION_MASTER_PASSWORD or ADMIN_API_TOKEN."""
    typer.echo(secrets.token_urlsafe(_PASSWORD_BYTES))
    return 0


@secret_commands.command("set")
@command
async def set_secret(
    settings: Settings,
    server: Annotated[str, typer.Argument(help="The server's name.")],
    slot: Annotated[str, typer.Argument(help="auth, env:NAME or header:NAME.")],
) -> int:
    """Store a secret of a server, typed without echo or read from standard input."""
    from bot.app.administration import administer  # noqa: PLC0415

    return await administer(settings, "mcp", ("secret", "set", server, slot), as_json=False)


@secret_commands.command("rotate")
@command
async def rotate(settings: Settings) -> int:
    """Encrypt every stored secret again with the first key of MCP_ENCRYPTION_KEY."""
    from bot.app.administration import rotate  # noqa: PLC0415

    count, unopened = await rotate(settings)
    many = "1 stored secret is" if count == 1 else f"{count} stored secrets are"
    typer.echo(f"{many} encrypted with the first key now.")
    for secret in unopened:
        typer.echo(f"countersign: no key opens {secret}. Fix: set it again", err=True)
    return FAILED if unopened else 0


token_commands = typer.Typer(help="Who may use the HTTP API.", rich_markup_mode=None)


@token_commands.command("create")
@command
async def create_token(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="What the audit and rules call the program: api:NAME.")],
    *,
    role: Annotated[
        ApiRole, typer.Option(help="member: talk to the bot; approver: approve calls too; admin: administer too.")
    ],
    workspace: Annotated[
        str, typer.Option(metavar="PLATFORM:ID", help="The only workspace it is good for, such as slack:T123.")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is good: 12h, 90d, 52w.")] = "",
) -> int:
    """Create a token and print it to standard output. It cannot be shown again."""
    from bot.app.administration import create  # noqa: PLC0415

    return await create(settings, name, role, workspace, expires)


@token_commands.command("list")
@command
async def list_tokens(
    settings: Settings, *, as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False
) -> int:
    """List all tokens, including expired and revoked ones."""
    from bot.app.administration import show  # noqa: PLC0415

    return await show(settings, as_json=as_json)


@token_commands.command("revoke")
@command
async def revoke_token(settings: Settings, name: Annotated[str, typer.Argument(help="The token's name.")]) -> int:
    """Revoke a token, at once and in every process."""
    from bot.app.administration import revoke  # noqa: PLC0415

    return await revoke(settings, name)
