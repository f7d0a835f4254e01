"""`secrets`: keys and stored secrets."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from bot.cli.errors import FAILED, Debug, run_command
from bot.settings import Settings

_PASSWORD_BYTES = 32

commands = typer.Typer(help="Keys and stored secrets.", rich_markup_mode=None)


@commands.command("generate-key")
def generate_key(*, debug: Debug = False) -> None:
    """Print a new key for MCP_ENCRYPTION_KEY."""

    async def generate(_settings: Settings) -> int:
        from bot.storage.encryption import generate_key  # noqa: PLC0415

        typer.echo(generate_key())
        return 0

    run_command(generate, debug=debug)


@commands.command("generate-password")
def generate_password(*, debug: Debug = False) -> None:
    """Print a new random value for ENCRYPTION_MASTER_PASSWORD or ADMIN_API_TOKEN."""

    async def generate(_settings: Settings) -> int:
        typer.echo(secrets.token_urlsafe(_PASSWORD_BYTES))
        return 0

    run_command(generate, debug=debug)


@commands.command("set")
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


@commands.command("rotate")
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
