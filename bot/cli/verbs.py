"""`servers` and `usage`: the commands of chats in a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.running import Debug, run_command
from bot.settings import Settings

WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""What these commands take is known to `bot.commands` alone."""


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

    run_command(answer, debug=debug)


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

    run_command(answer, debug=debug)
