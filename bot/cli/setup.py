"""`setup`: from nothing to a bot that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.execution import Debug, run_command
from bot.settings import SLACK_FEATURES, Settings

_SUBJECTS = ("slack", "discord", "model")


def setup(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[slack|discord|model]", help="What to set up. Without it you are asked.", show_default=False
        ),
    ] = "",
    *,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print every step and its state; ask nothing, change nothing.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --print: also do what needs no person, such as writing .env.")
    ] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="With --print: read NAME=VALUE lines, such as tokens, from standard input.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --print: one JSON object a line.")] = False,
    redo: Annotated[str, typer.Option(metavar="STEP", help="Do a step again that is done, such as token.")] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Slack: the app's name.")] = "",
    without: Annotated[
        str,
        typer.Option(
            metavar="FEATURE,...", help=f"Slack: leave features out of the app: {', '.join(sorted(SLACK_FEATURES))}."
        ),
    ] = "",
    http: Annotated[
        str, typer.Option(metavar="URL", help="Slack: call the bot at this https address, instead of Socket Mode.")
    ] = "",
    server: Annotated[str, typer.Option(metavar="ID", help="Discord: the server.")] = "",
    channel: Annotated[
        str, typer.Option(metavar="CHANNEL", help="Channel for the first message: #name or id; skip for none in Slack.")
    ] = "",
    admin: Annotated[
        str,
        typer.Option(metavar="PERSON", help="Who administers: id, name, in Slack e-mail; workspace for its admins."),
    ] = "",
    approver: Annotated[
        list[str] | None, typer.Option(metavar="PERSON", help="Who else may approve; may be repeated.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="Model: PROVIDER:NAME, or demo.")] = "",
    message: Annotated[bool, typer.Option("--message/--no-message", help="Post a first message.")] = True,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Offer to open pages in a browser.")] = True,
    wait: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="The longest wait for something you do elsewhere.")
    ] = 180.0,
    debug: Debug = False,
) -> None:
    """Connect Slack, Discord and a language model, step by step; an interrupted setup goes on where it stopped.

    Tokens are typed hidden, or come from the environment, .env or --stdin, never from the command line. With --print:
    exit code 0 if everything is set up, 1 if something does not work, 4 if steps are left.
    """
    if subject and subject not in _SUBJECTS:
        raise typer.BadParameter(f"there is nothing called {subject!r:.40} to set up: write {', '.join(_SUBJECTS)}.")
    if (write or stdin or as_json) and not print_only:
        raise typer.BadParameter("--write, --stdin and --json are for --print.")
    if redo and (print_only or not subject):
        raise typer.BadParameter("--redo is for a terminal, and needs what it is a step of.")
    left_out = frozenset(word.strip() for word in without.split(",") if word.strip())
    if unknown := left_out - SLACK_FEATURES:
        raise typer.BadParameter(
            f"there is no feature {min(unknown)!r:.40}: write {', '.join(sorted(SLACK_FEATURES))}."
        )

    async def guide(settings: Settings) -> int:
        from bot.app.setup.values import SetupOptions  # noqa: PLC0415 - `--help` needs none of it
        from bot.app.setup.wizard import print_setup, set_up  # noqa: PLC0415

        options = SetupOptions(
            redo=redo,
            name=name,
            without=left_out,
            http=http.rstrip("/"),
            server=server,
            channel=channel,
            admin=admin,
            approvers=tuple(approver or ()),
            model=model,
            message=message,
            browser=browser,
            wait=wait,
        )
        if print_only:
            return await print_setup(settings, subject, options, write=write, stdin=stdin, as_json=as_json)
        return await set_up(settings, subject, options)

    run_command(guide, debug=debug)
