"""`ask`, `hook`, `connect` and `receipt`: approvals for other agents, on the agent's side.

These commands read neither the settings nor the files of a working folder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import uuid
from typing import Annotated, Any, Literal

import typer

from bot.cli.execution import INTERRUPTED, USAGE, print_error, run_plainly

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
receipts = typer.Typer(help="Receipts of approvals.", no_args_is_help=True)
app.add_typer(receipts, name="receipt")
_NOT_APPROVED = 3
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_DURATION = re.compile(r"(?=\d)(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s?)?")


@app.command()
def ask(
    *,
    tool: Annotated[str, typer.Option(metavar="NAME", help="The tool, as rules and the card name it.")],
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="KEY=VALUE", help="An argument: JSON, or else a text. May be given several times."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="What it is about, in a few words.")] = "",
    reason: Annotated[str, typer.Option(help="Why it is asked.")] = "",
    wait: Annotated[str, typer.Option(metavar="TIME", help="Longest wait for a decision.")] = "30m",
    server: Annotated[str, typer.Option(metavar="NAME", help="The server that rules see; else the token's name.")] = "",
    effect: Annotated[
        str, typer.Option(metavar="KEY", help="What the call is about, such as refund:42: one run for all who ask.")
    ] = "",
    audience: Annotated[str, typer.Option(metavar="NAME", help="The executor that the receipt is for.")] = "",
    key: Annotated[
        str, typer.Option("--idempotency-key", metavar="KEY", help="The same key later attaches to the same approval.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer instead of the receipt.")] = False,
) -> None:
    """Ask for an approval of a call that runs elsewhere; exit code 3 if it is denied, has expired or still waits.

    The receipt alone is on standard output. COUNTERSIGN_URL and COUNTERSIGN_TOKEN say where to ask.
    """
    seconds, key = _parse_duration(wait), key or str(uuid.uuid4())
    fields = {"title": title, "reason": reason, "server": server, "effect": effect}
    given = fields | {"audience": audience, "cwd": os.getcwd()}  # noqa: PTH109 - pathlib loads slowly
    question = {"tool": tool, "arguments": _parse_arguments(arguments or [])}
    question |= {name: value for name, value in given.items() if value}

    def run() -> int:
        from bot.app import gateway_client as gateway  # noqa: PLC0415 - `--help` needs none of it

        try:
            answer = gateway.ask(gateway.GatewayClient.from_environment(), question, key, seconds, _report)
        except KeyboardInterrupt:
            print_error(f"Interrupted. A request that was sent stays. Fix: attach to it with --idempotency-key {key}")
            return INTERRUPTED
        _report(answer)
        approved = answer.get("status") == "approved"
        if as_json:
            typer.echo(json.dumps(answer, ensure_ascii=False))
        elif approved:
            typer.echo(answer.get("receipt", ""))
        return 0 if approved else _NOT_APPROVED

    run_plainly(run)


@receipts.command("verify")
def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file of the receipt; - is standard input.")] = "-",
    *,
    keys: Annotated[
        str, typer.Option("--jwks", metavar="URL|FILE", help="The public keys; else those at COUNTERSIGN_URL.")
    ] = "",
    audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="The executor that the receipt has to be for.")
    ] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="The tool that it has to be about.")] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="The arguments that it has to be about, all of them.")
    ] = None,
) -> None:
    """Check a receipt, and print its facts as JSON; exit code 1 if it does not count."""
    given = None if arguments is None else _parse_value(arguments)
    if given is not None and not isinstance(given, dict):
        raise typer.BadParameter("it must be a JSON object.", param_hint="--arguments")

    def run() -> int:
        from bot.app import gateway_client as gateway  # noqa: PLC0415 - `--help` needs none of it
        from bot.web.gateway.receipts import verify_receipt  # noqa: PLC0415

        text = sys.stdin.buffer.read() if file == "-" else gateway.read_file(file)
        claims = verify_receipt(text.decode("ascii", "replace").strip(), gateway.read_keys(keys), audience, given)
        if tool is not None and claims["tool"] != tool:
            print_error(f"The receipt is about the tool {claims['tool']!r}. Fix: ask for an approval of {tool!r}")
            return 1
        if audience is None:
            print_error(f"The receipt is for {claims['aud']}, which was not checked: --audience does.")
        typer.echo(json.dumps(claims, ensure_ascii=False))
        return 0

    run_plainly(run)


def _report(answer: dict[str, Any]) -> None:
    """Print the state of an approval for a person."""
    facts = [str(answer.get("status"))]
    for name, label in (("waitingFor", "waiting for"), ("deciders", "by"), ("reason", "because"), ("url", "see")):
        if value := answer.get(name):
            facts.append(f"{label} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    if answer.get("edited"):
        facts.append(f"with other arguments: {json.dumps(answer.get('arguments'), ensure_ascii=False)}")
    print_error(f"{answer.get('approvalId')}: {'; '.join(facts)}")


@app.command()
def hook(
    *,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="Longest wait; less than the client's own limit.")
    ] = "9m30s",
    defer: Annotated[
        bool, typer.Option("--defer", help="End the client's run while a call waits, to be resumed; --wait is 0 then.")
    ] = False,
) -> None:
    """Decide a PreToolUse hook: its JSON on standard input, the decision's on standard output.

    Without a decision the exit code is 2, and the reason is on standard error: clients let a call go on otherwise.
    """

    def run() -> int:
        from bot.app import gateway_client as gateway  # noqa: PLC0415 - `--help` needs none of it

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            client = gateway.GatewayClient.from_environment()
            decision = gateway.decide_hook(client, sys.stdin.buffer.read(), seconds, defer=defer)
        except KeyboardInterrupt:
            print_error("The wait for the decision was interrupted. The approval stays.")
            return USAGE
        sys.stdout.write(json.dumps(decision))
        sys.stdout.flush()
        return 0

    seconds = 0.0 if defer else _parse_duration(wait)
    run_plainly(run, failed=USAGE)


@app.command()
def connect(
    client: Annotated[Literal["claude-code", "cursor", "vscode", "goose", "codex"], typer.Argument(help="The agent.")],
    *,
    url: Annotated[
        str, typer.Option(metavar="URL", envvar="COUNTERSIGN_URL", help="The address of Countersign.")
    ] = "http://127.0.0.1:8080",
    token_env: Annotated[
        str, typer.Option(metavar="NAME", help="The variable that has the token.")
    ] = "COUNTERSIGN_TOKEN",  # noqa: S107 - a name
    write: Annotated[
        bool, typer.Option("--write", help="Merge it into the files, and keep a copy of each as FILE.bak.")
    ] = False,
) -> None:
    """Print the configuration of another agent for this gateway, or write it into its files."""
    if not _VARIABLE.fullmatch(token_env) or token_env.startswith("cs_"):
        raise typer.BadParameter("name the variable, not the token: no file gets that.", param_hint="--token-env")

    def run() -> int:
        from bot.app.client_configuration import CLIENTS, permission_prompt  # noqa: PLC0415 - see above
        from bot.app.gateway_client import check_url  # noqa: PLC0415

        address = check_url(url)
        for addition in CLIENTS[client](address, token_env):
            if write:
                typer.echo(f"{addition.path}: {'written' if addition.write() else 'has it already'}", err=True)
            else:
                typer.echo(f"In {addition.path}:\n{addition.text}")
        if client == "claude-code":
            prompt = permission_prompt(address, token_env)
            typer.echo(f"Or, without the hook, a run without a person at the terminal:\n{prompt}")
        return 0

    run_plainly(run)


def _parse_duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time such as 30m, 9m30s or 1h.", param_hint="--wait")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 3600.0 * hours + 60.0 * minutes + seconds


def _parse_arguments(given: list[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign) or name in arguments:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE, or has the key of another.", param_hint="--arg")
        arguments[name] = _parse_value(value)
    return arguments


def _parse_value(text: str) -> Any:
    """Return a value of JSON, else the text. A number that JSON would write otherwise, such as the version 1.10, is a
    text.
    """
    try:
        value = json.loads(text, parse_constant=int)  # which refuses NaN
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float | int) and json.dumps(value) != text else value
