"""`servers` and `usage`: the commands of chats in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bot.cli.errors import Debug, run_command
from bot.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]

WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Context settings: `bot.commands` parses the arguments."""


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
