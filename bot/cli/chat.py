"""`chat`, `run` and `doctor`: the bot itself."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from bot.cli.execution import Debug, command, run_command
from bot.llm.providers import PROVIDERS
from bot.settings import Settings

_MODEL = (
    f"demo, or PROVIDER:NAME; the providers are {', '.join(name for name in PROVIDERS if name != 'demo')}. "
    "Several with commas between them: each stands in for those before it. Without it, BOT_MODEL says."
)
_NAME = re.compile(r"[\w.~-]{1,64}")


def chat(
    *,
    message: Annotated[str | None, typer.Option("-m", "--message", help="Ask once, print the answer, leave.")] = None,
    model: Annotated[str, typer.Option(metavar="MODEL,...", help=_MODEL)] = "",
    approve: Annotated[
        Literal["ask", "never", "reads", "all"],
        typer.Option(help="Who approves calls that need it: ask the person here, never, reads only, or all of them."),
    ] = "ask",
    user: Annotated[str, typer.Option(help="Speak as another user, with that user's rights only.")] = "",
    agent: Annotated[str, typer.Option(help="Ask this agent, a profile that answers to its name.")] = "",
    new: Annotated[
        bool, typer.Option("--new", help="Start a new conversation, of the name that --conversation gives.")
    ] = False,
    conversation: Annotated[
        str, typer.Option(metavar="ID", help="Go on with this conversation; the beginning of its id is enough.")
    ] = "",
    list_them: Annotated[
        bool, typer.Option("--list", help="List your conversations with their ids, and leave.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line per event.")] = False,
    debug: Debug = False,
) -> None:
    """Talk in this terminal. Without a terminal, every line of standard input is a message."""
    if new and conversation and not _NAME.fullmatch(conversation):
        raise typer.BadParameter("a name has up to 64 letters, digits and . _ ~ -", param_hint="--conversation")
    if list_them and (message is not None or new or conversation):
        raise typer.BadParameter("--list goes with no message and no conversation.")
    message = "/conversations list" if list_them else message
    if message is not None and not message.strip():
        raise typer.BadParameter("the message is empty.", param_hint="-m")

    async def talk(settings: Settings) -> int:
        from bot.app.chat import ChatOptions, chat  # noqa: PLC0415 - `--help` needs none of it
        from bot.platforms.console.auto_approval import ApproveMode  # noqa: PLC0415

        options = ChatOptions(message, model, ApproveMode(approve), user, new, conversation, json, agent)
        return await chat(settings, options)

    run_command(talk, debug=debug)


@command
async def run(
    settings: Settings,
    *,
    only: Annotated[str, typer.Option(metavar="PART,...", help="Some parts only: slack, discord, worker, web.")] = "",
) -> int:
    """Run all configured components, until SIGTERM."""
    from bot.app.service import run as run_service  # noqa: PLC0415

    return await run_service(settings, frozenset(part.strip() for part in only.split(",") if part.strip()))


def doctor(
    platform: Annotated[
        str, typer.Argument(metavar="[slack|discord]", help="With --live: the platform to test.", show_default=False)
    ] = "",
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Test a live workspace, with posts there and a person who presses buttons.")
    ] = False,
    channel: Annotated[
        str, typer.Option(metavar="ID", help="With --live: the channel to test in. Without it you are asked.")
    ] = "",
    wait: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="With --live: the longest wait for a step of yours.")
    ] = 180.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a check.")] = False,
    debug: Debug = False,
) -> None:
    """Check settings, models, platforms, database and every MCP server; exit code 1 if anything is broken.

    Models' services are asked whether they have the model and take the key, which costs nothing. With --live, the bot
    is tried in Slack or Discord, step by step, in about ten minutes; what it posts is deleted at the end.
    """
    if not live and (platform or channel):
        raise typer.BadParameter("a platform and --channel are for --live.")

    async def examine(settings: Settings) -> int:
        if live:
            from bot.app.live_doctor import check_live  # noqa: PLC0415

            return await check_live(settings, platform, channel, as_json=as_json, wait=wait)
        from bot.app.doctor import examine_all  # noqa: PLC0415

        return await examine_all(settings, as_json=as_json)

    run_command(examine, debug=debug)
