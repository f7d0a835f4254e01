"""`countersign setup`: the subjects, with a person at the terminal or printed for a script.

Exit codes: 0 everything is set up, 1 something does not work, 2 wrong use, 4 steps are left, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from io import StringIO

from dotenv import dotenv_values

from bot.app.setup.steps import Step, exit_code, print_steps, run_steps
from bot.app.setup.values import Progress, SetupOptions, SetupValues, env_file, is_private
from bot.errors import CountersignError, SettingsError
from bot.examination import CheckStatus
from bot.folders import in_shell
from bot.platforms.console.prompts import SetupTerminal, is_interactive, open_setup_terminal
from bot.settings import Settings

SUBJECTS = {"slack": "Slack", "discord": "Discord", "model": "Language model"}
INTERRUPTED = 130
_MAX_INPUT = 100_000
_TOKENS = {"slack": ("SLACK_BOT_TOKEN",), "discord": ("DISCORD_TOKEN",)}


async def set_up(settings: Settings, subject: str, options: SetupOptions) -> int:
    """Set up one subject, or those that the person chooses. Return the exit code. Raises CountersignError."""
    if options.redo:
        names = [step.name for step in _steps(subject, settings, SetupValues(), options)]
        if options.redo not in names:
            raise SettingsError(f"There is no step {options.redo[:40]!r}.", f"write one of {', '.join(names)}")
    command = f"countersign setup {subject}".strip()
    if not is_interactive():
        raise SettingsError(
            "The setup asks questions, and there is no terminal.",
            f"run it in a terminal, or print every step with `{command} --print`",
        )
    with open_setup_terminal() as terminal:
        try:
            code, start = await _guide(terminal, settings, subject, options)
        except (KeyboardInterrupt, EOFError, asyncio.CancelledError):
            terminal.print(f"\nStopped. Finished steps are kept; `{command}` continues from there.")
            return INTERRUPTED
    if start:
        from bot.app.service import run  # noqa: PLC0415 - loads when it is wanted

        return await run(SetupValues().settings())
    return code


def _steps(subject: str, settings: Settings, values: SetupValues, options: SetupOptions) -> Sequence[Step]:
    module = importlib.import_module(f"bot.app.setup.{subject}")
    steps: Sequence[Step] = module.steps(values, Progress(settings, subject), options)
    return steps


# -------------------- with a person


async def _guide(terminal: SetupTerminal, settings: Settings, subject: str, options: SetupOptions) -> tuple[int, bool]:
    """Guide a person through one subject or several. Return the exit code, and True to start the bot."""
    values = SetupValues()
    if not is_private(env_file()):
        terminal.warn(f"Others on this machine can read {env_file()}. The setup makes it yours alone when it writes.")
    if subject:
        steps = _steps(subject, settings, values, options)
        terminal.print(f"Countersign setup: {SUBJECTS[subject]}. Ctrl-C stops; finished steps are kept.")
        has_run = await run_steps(terminal, steps, options.redo)
        terminal.print("\nCheck")
        if not has_run:
            names = "|".join(step.name for step in steps)
            terminal.say(f"Everything was done before. To change a step: --redo {names}")
        return await _finish(terminal, values, list(dict.fromkeys([subject, "model"])))
    terminal.print("Countersign setup. Ctrl-C stops; finished steps are kept.")
    while True:
        subject = await terminal.choose(
            "What do you want to set up?",
            [
                *((name, f"{label:<16}{_state(name, values)}") for name, label in SUBJECTS.items()),
                ("", f"Nothing else: check the setup{', and start the bot' if _platforms(values) else ''}"),
            ],
            default=_first_open(values),
        )
        if not subject:
            break
        terminal.print(f"\n{SUBJECTS[subject]}")
        await run_steps(terminal, _steps(subject, settings, values, options), "")
    present = _platforms(values)
    if not present:
        terminal.print("\nNo platform is set up: the bot answers in this terminal, with `countersign chat`.")
        return await _check(terminal, values, ["model"]), False
    return await _finish(terminal, values, ["model", *present])


async def _finish(terminal: SetupTerminal, values: SetupValues, subjects: Sequence[str]) -> tuple[int, bool]:
    code = await _check(terminal, values, subjects)
    if code:
        terminal.print("\nSomething does not work yet: see the lines with ✗ above, then run this again.")
        return code, False
    if not values.get("BOT_MODEL") and "model" in subjects:
        terminal.say("`countersign setup model` connects a language model.")
    if subjects == ["model"]:
        terminal.print("\nNext: countersign chat")
        return code, False
    terminal.print("\nEverything is set up. Next: countersign run")
    return code, await terminal.confirm("Start the bot now? Ctrl-C stops it")


async def _check(terminal: SetupTerminal, values: SetupValues, subjects: Sequence[str]) -> int:
    """Run the doctor for these subjects. Return 1 if something does not work."""
    from bot.app.doctor import examine_subjects  # noqa: PLC0415 - loads when it is needed

    try:
        worst = await examine_subjects(values.settings(), subjects, as_json=False, prefix="  ")
    except CountersignError as error:
        terminal.report_error(str(error.detailed_cause), str(error.fix))
        return 1
    return 1 if worst is CheckStatus.BROKEN else 0


def _platforms(values: SetupValues) -> list[str]:
    return [name for name in _TOKENS if _has_token(name, values)]


def _has_token(subject: str, values: SetupValues) -> bool:
    return all(values.get(name) for name in _TOKENS[subject])


def _has_connection(values: SetupValues) -> bool:
    return bool(values.get("SLACK_APP_TOKEN") or values.get("SLACK_SIGNING_SECRET"))


def _state(subject: str, values: SetupValues) -> str:
    if subject == "model":
        return values.get("BOT_MODEL") or "the demo model"
    if not _has_token(subject, values):
        return "not set up"
    is_begun = subject == "slack" and not _has_connection(values)
    return "begun" if is_begun else f"token in {values.origin(_TOKENS[subject][0])}"


def _first_open(values: SetupValues) -> str:
    has_slack = _has_token("slack", values) and _has_connection(values)
    if has_slack or (_has_token("discord", values) and not _has_token("slack", values)):
        return "" if values.get("BOT_MODEL") else "model"
    return "slack"


# -------------------- without a person


async def print_setup(
    settings: Settings, subject: str, options: SetupOptions, *, write: bool, stdin: bool, as_json: bool
) -> int:
    """Print the steps of one subject or of all, with their states; with `write`, do what needs no person. Return the
    exit code. Raises CountersignError.
    """
    values = SetupValues(_read_stdin() if stdin else None)
    findings: list[CheckStatus] = []
    for name in [subject] if subject else list(SUBJECTS):
        if not subject and name in _TOKENS and not _has_token(name, values):
            text = f"{SUBJECTS[name]}: not set up. Its steps: countersign setup {name} --print"
            _say(text, name, as_json=as_json)
            continue
        if not as_json:
            sys.stdout.write(f"{SUBJECTS[name]}\n\n")
        steps = _steps(name, settings, values, options)
        findings += await print_steps(sys.stdout, name, steps, write=write, as_json=as_json)
        if name == "model" or _has_token(name, values):
            findings.append(await _print_checks(values, name, as_json=as_json))
    if not subject and not any(_has_token(name, values) for name in _TOKENS):
        findings.append(CheckStatus.SKIPPED)
    code = exit_code(findings)
    done = "The model is set up." if subject == "model" else "Everything is set up. Next: countersign run"
    texts = {0: done, 1: "Something does not work: see ✗.", 4: "Steps are left: see those without ✓."}
    _say(texts[code], "", as_json=as_json)
    return code


async def _print_checks(values: SetupValues, subject: str, *, as_json: bool) -> CheckStatus:
    from bot.app.doctor import examine_subjects  # noqa: PLC0415 - loads when it is needed

    if not as_json:
        sys.stdout.write("Check\n")
    try:
        worst = await examine_subjects(values.settings(), [subject], as_json=as_json, prefix="  ")
    except CountersignError as error:
        _say(f"  ✗ {error}", subject, as_json=as_json)
        return CheckStatus.BROKEN
    _say("", "", as_json=as_json)
    return worst


def _say(text: str, subject: str, *, as_json: bool) -> None:
    if not as_json:
        sys.stdout.write(f"{in_shell(text)}\n")
    elif subject:
        sys.stdout.write(f"{json.dumps({'subject': subject, 'status': 'open', 'detail': text})}\n")


def _read_stdin() -> dict[str, str]:
    """Return the variables of standard input, which are lines of `.env`. Raises SettingsError."""
    if sys.stdin.isatty():
        raise SettingsError("--stdin reads NAME=VALUE lines, and standard input is a terminal.", "pass them by a pipe")
    given = dotenv_values(stream=StringIO(sys.stdin.read(_MAX_INPUT)), interpolate=False)
    known = {name: value for name, value in given.items() if value}
    unknown = [name for name in known if not name.isupper() or not name.isidentifier()]
    if unknown:
        raise SettingsError(
            f"{len(unknown)} lines of standard input are no variables.", "write NAME=VALUE on each line"
        )
    return known
