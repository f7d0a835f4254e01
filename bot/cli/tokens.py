"""`tokens`: access to the HTTP API."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from bot.cli.errors import Debug, run_command
from bot.settings import Settings


class ApiRoleOption(StrEnum):
    """Values of `--role`."""

    MEMBER = "member"
    APPROVER = "approver"
    ADMIN = "admin"


commands = typer.Typer(help="Who may use the HTTP API.", rich_markup_mode=None)


@commands.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the audit and rules call the program: api:NAME.")],
    *,
    role: Annotated[
        ApiRoleOption, typer.Option(help="member: talk to the bot; approver: approve calls too; admin: administer too.")
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
        from bot.domain.api_clients import ApiRole as Meant  # noqa: PLC0415

        return await create(settings, name, Meant(role.value), workspace, expires)

    run_command(make, debug=debug)


@commands.command("list")
def list_tokens(
    *, as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False, debug: Debug = False
) -> None:
    """List all tokens, including expired and revoked ones."""

    async def show(settings: Settings) -> int:
        from bot.app.administration import show  # noqa: PLC0415

        return await show(settings, as_json=as_json)

    run_command(show, debug=debug)


@commands.command("revoke")
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
