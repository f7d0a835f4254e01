"""Steps of a setup, those that all chat platforms share, and running them with a person or for a script."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, ClassVar, Generic, TextIO, TypeVar

from bot.app.setup.values import WORKSPACE, Progress, SetupOptions, SetupValues, env_file
from bot.domain.locales import Locale, use_locale
from bot.errors import CountersignError, SettingsError
from bot.examination import Check, CheckFailed, CheckSkipped, CheckStatus, run_check
from bot.platforms.console.prompts import SetupTerminal
from bot.rendering.text_safety import single_line, strip_control

_LONGEST = 400
SKIPPED = "skip"
POLL_SECONDS = 2.0
"""Seconds between two requests while the setup waits; Slack allows fifty a minute."""
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
Checked = TypeVar("Checked")
"""Result of a check of the bot token."""


_STATES = {CheckStatus.WELL: "done", CheckStatus.SKIPPED: "open", CheckStatus.BROKEN: "wrong"}
"""States of a step in `--json`."""
T = TypeVar("T")


def check_form(text: str, forms: Iterable[tuple[str, str, str]]) -> None:
    """Raise SettingsError for the first form that matches the text. Each is a regular expression, a cause and a fix."""
    for pattern, cause, fix in forms:
        if re.fullmatch(pattern, text, re.DOTALL):
            raise SettingsError(cause, fix)


class Step(ABC):
    """One step: a check that can be repaired. `name` is its value of --redo, `title` its heading."""

    name: str
    title: str

    @abstractmethod
    async def inspect(self) -> str:
        """Return what is set up. Changes and posts nothing. Raises CheckSkipped while the step is open, and
        CountersignError if a value does not work.
        """

    @abstractmethod
    async def guide(self) -> Sequence[str]:
        """Return instructions for `--print`: pages to open, variables to set."""

    @abstractmethod
    async def ask(self, terminal: SetupTerminal) -> None:
        """Do the step with a person at the terminal. It is repeated after a CountersignError."""

    async def is_confirmed(self) -> bool:
        """Return False if a person has to confirm the step although it is done."""
        return True

    async def apply(self) -> None:
        """Do the parts that need no person. Raises CountersignError."""
        return

    async def check(self, *, apply: bool = False) -> Check:
        """Return the state of the step, with `apply` after its parts that need no person."""

        async def probe() -> str:
            try:
                if apply:
                    await self.apply()
                return await self.inspect()
            except CountersignError as error:
                raise CheckFailed(error.detailed_cause, error.fix) from error

        return await run_check(self.name, probe, timed=False)


async def run_steps(terminal: SetupTerminal, steps: Sequence[Step], redo: str) -> bool:
    """Run the open steps and the step `redo` with a person. Return True if any ran."""
    has_run = False
    for number, step in enumerate(steps, start=1):
        terminal.heading(number, len(steps), step.title)
        check = await step.check()
        if check.finding is CheckStatus.WELL and step.name != redo and await step.is_confirmed():
            terminal.report_done(single_line(check.detail, _LONGEST))
            continue
        if check.is_broken:
            terminal.report_error(single_line(check.detail, _LONGEST), single_line(check.fix, _LONGEST))
        has_run = True
        await retry_until_done(terminal, lambda step=step: step.ask(terminal))  # type: ignore[misc]
    return has_run


async def retry_until_done(terminal: SetupTerminal, action: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action until it raises no CountersignError. Each error is reported with its fix."""
    while True:
        questions = terminal.questions
        try:
            await action()
        except CountersignError as error:
            terminal.report_error(
                single_line(str(error.detailed_cause), _LONGEST), single_line(str(error.fix), _LONGEST)
            )
            if terminal.questions == questions:
                await terminal.wait_for_enter("Press Enter to try again")
        else:
            return


async def print_steps(
    out: TextIO, subject: str, steps: Sequence[Step], *, write: bool, as_json: bool
) -> Sequence[CheckStatus]:
    """Print every step with its state and instructions; with `write`, apply it first. Return the results."""
    findings = []
    for number, step in enumerate(steps, start=1):
        check = await step.check()
        if write and not check.is_broken:
            check = await step.check(apply=True)
        guide = map(strip_control, await step.guide() if check.finding is not CheckStatus.WELL else ())
        detail, fix = single_line(check.detail, _LONGEST), single_line(check.fix, _LONGEST)
        if as_json:
            place = {"subject": subject, "step": step.name, "title": step.title, "status": _STATES[check.finding]}
            fields = {**place, "detail": detail, "fix": fix, "guide": [line for line in guide if line]}
            out.write(f"{json.dumps(fields, ensure_ascii=False)}\n")
        else:
            lines = [f"[{number}/{len(steps)}] {step.title}", f"  {check.finding.mark} {detail or 'To do.'}"]
            lines += [f"    Fix: {fix}"] if fix else []
            out.write("\n".join([*lines, *(f"  {line}".rstrip() for line in guide), "\n"]))
        out.flush()
        findings.append(check.finding)
    return findings


def exit_code(findings: Sequence[CheckStatus]) -> int:
    """Return 0 if everything is done, 1 if something is wrong, and 4 if steps are left."""
    if CheckStatus.BROKEN in findings:
        return 1
    return 4 if CheckStatus.SKIPPED in findings else 0


@dataclass
class PlatformSetup(ABC, Generic[Checked]):
    """Setup of one platform: its values, and the bot tokens that were checked."""

    subject: ClassVar[str]
    token_name: ClassVar[str]

    values: SetupValues
    progress: Progress
    options: SetupOptions
    checked: dict[str, Checked] = field(default_factory=dict)

    @property
    def app_name(self) -> str:
        """The app, for people."""
        return "it"

    @property
    def token(self) -> str:
        """The bot token; empty if it is not set."""
        return self.values.get(self.token_name)

    @abstractmethod
    async def check(self, token: str) -> Checked:
        """Check a bot token. Raises CountersignError with a cause and a fix."""

    async def require_token(self) -> Checked:
        """Return the checked token. Raises CountersignError if it is not set or does not work."""
        if not self.token:
            raise SettingsError("The bot token comes first.", f"set {self.token_name}")
        return self.checked.get(self.token) or await self.check(self.token)

    async def has_token(self) -> bool:
        """Return True if the token works; its own step reports why it does not."""
        try:
            await self.require_token()
        except CountersignError:
            return False
        return True


Setup = TypeVar("Setup", bound=PlatformSetup[Any])


class PlatformStep(Step, Generic[Setup]):
    """A step of a platform's setup."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._values = setup.values
        self._progress = setup.progress
        self._options = setup.options

    async def _open_in_browser(self, terminal: SetupTerminal, url: str, page: str) -> bool:
        is_local = any(map(os.environ.get, _DISPLAYS)) and not os.environ.get("SSH_CONNECTION")
        has_browser = self._options.browser and (sys.platform in ("darwin", "win32") or is_local)
        if not has_browser or not await terminal.confirm(f"Open {page} in your browser?"):
            return False
        try:
            return webbrowser.open(url)
        except (webbrowser.Error, OSError):
            return False

    async def _may_replace(self, terminal: SetupTerminal, name: str, entered: str) -> bool:
        """Return True if the value is new, the same as before, or may replace the old one."""
        current = self._values.get(name)
        if current in ("", entered):
            return True
        return await terminal.confirm(f"Replace the {name} that {self._values.origin(name)} has?")

    def _save_channel(self, channel_id: str, name: str) -> None:
        changed = channel_id != self._progress.get("channel")
        self._progress.save(channel=channel_id, channel_name=name, **({"message": ""} if changed else {}))

    async def _wait_for(self, terminal: SetupTerminal, find: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what is found within `options.wait` seconds, None if nothing is."""
        terminal.say(f"Waiting for it, {self._options.wait:.0f} seconds at most. Ctrl-C stops.")
        until = monotonic() + self._options.wait
        while monotonic() < until:
            if (found := await find()) is not None:
                return found
            await asyncio.sleep(POLL_SECONDS)
        return None


class PlatformAppStep(PlatformStep[Setup]):
    """The app of the bot on the platform's pages."""

    name = "app"

    async def inspect(self) -> str:
        """Return the token's origin. Without a token the step is done once the person has said so."""
        token = self._setup.token_name
        if self._setup.token:
            return f"{token} is set in {self._values.origin(token)}."
        if self._progress.get("created"):
            return f"You created {self._setup.app_name}. To open the page again: --redo app"
        raise CheckSkipped

    async def _ask_if_created(self, terminal: SetupTerminal, question: str, next_step: str) -> None:
        await terminal.wait_for_enter(question)
        self._progress.save(created="yes")
        terminal.say(next_step)


class PlatformTokenStep(PlatformStep[Setup]):
    """The bot token."""

    name, title = "token", "Bot token"
    owner: ClassVar[str]
    """Name of the value in the progress that says of which workspace or application the token is."""

    async def is_confirmed(self) -> bool:
        """Return False before the first token was accepted: one set elsewhere may be of the wrong owner."""
        return bool(self._progress.get(self.owner))

    async def apply(self) -> None:
        """Save the token of standard input."""
        token, name = self._setup.token, self._setup.token_name
        if not token:
            return
        checked = await self._setup.check(token)
        if name in self._values.given:
            self._values.save({name: token})
        self._note(checked)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Offer the token that is set, or ask for one. Raises SettingsError for one of another owner."""
        name, present = self._setup.token_name, self._setup.token
        offered = await self._offer(terminal, present) if present else None
        token, checked = offered or await self._enter(terminal)
        if offered is not None and token == present:
            self._note(checked)
            return
        if not await self._may_replace(terminal, name, token):
            raise SettingsError("The old token was kept.", "use it, or replace it")
        self._values.save({name: token})
        self._note(checked)
        terminal.report_done(f"{name} is in {env_file()}, which only you can read.")

    async def _offer(self, terminal: SetupTerminal, token: str) -> tuple[str, Any] | None:
        """Return the token that is set, and its check, if it works and is wanted."""
        name = self._setup.token_name
        try:
            checked = await self._setup.check(token)
        except CountersignError as error:
            terminal.report_error(f"{name} does not work: {error.detailed_cause}", str(error.fix))
            return None
        question = f"The {name} in {self._values.origin(name)} is {self._label(checked)}. Use it?"
        return (token, checked) if await terminal.confirm(question) else None

    @abstractmethod
    async def _enter(self, terminal: SetupTerminal) -> tuple[str, Any]:
        """Ask for a token, and return it with its check. Raises SettingsError for one of another owner."""

    @abstractmethod
    def _label(self, checked: Any) -> str:
        """Return the bot and its owner, for people."""

    @abstractmethod
    def _note(self, checked: Any) -> None:
        """Note the owner of an accepted token, and forget what belongs to another one."""


class PlatformAdminsStep(PlatformStep[Setup]):
    """Administrators and approvers."""

    name, title = "admins", "Administrators and approvers"
    label: ClassVar[str]
    default_admins: ClassVar[str]
    """Sentence with the administrators of an empty ADMINS."""

    async def inspect(self) -> str:
        """Return the chosen users. The step is done if ADMINS has one of the platform, or if that was left to it."""
        settings = self._values.settings()
        admins = sorted(name for name in settings.admins if name.startswith(self._setup.subject))
        if admins:
            approvers = sorted(name for name in settings.approvers if name.startswith(self._setup.subject))
            more = f" Approvers: {', '.join(approvers)}." if approvers else ""
            return f"Administrators: {', '.join(admins)}.{more}"
        if self._progress.get("admins") == WORKSPACE:
            return self._default_text(settings.admins)
        raise CheckSkipped

    async def apply(self) -> None:
        """Save the users of --admin and --approver."""
        admin, approvers = self._options.admin, self._options.approvers
        if not (admin or approvers):
            return
        if admin == WORKSPACE:
            self._progress.save(admins=WORKSPACE)
        named = [] if admin in ("", WORKSPACE) else [admin]
        self._save(*await self._find_principals(named, approvers))

    @abstractmethod
    async def _find_principals(self, admins: Sequence[str], approvers: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the principals of users that are named by id or otherwise. Raises CountersignError."""

    def _default_text(self, admins: Collection[str]) -> str:
        if admins:
            return f"ADMINS names nobody of {self.label}: only {', '.join(sorted(admins))} may administer."
        return self.default_admins

    def _save(self, admins: Sequence[str], approvers: Sequence[str]) -> None:
        added = {"ADMINS": admins, "APPROVERS": approvers}
        self._values.save({name: self._values.with_names(name, more) for name, more in added.items() if more})


class PlatformMessageStep(PlatformStep[Setup]):
    """The first message, posted once in the channel of the setup."""

    name, title = "message", "First message"

    async def inspect(self) -> str:
        """Return the channel of the message, or that none is wanted."""
        if self._progress.get("message") == SKIPPED or not self._options.message:
            return "Nothing was posted, as you chose."
        if self._progress.get("message"):
            return f"It is in #{self._progress.get('channel_name')}."
        raise CheckSkipped

    async def guide(self) -> Sequence[str]:
        """Return the purpose of the message."""
        return ["The bot introduces itself in the channel, with what to try. --write posts it."]

    async def apply(self) -> None:
        """Post the message unless that was done or refused."""
        is_open = self._options.message and not self._progress.get("message")
        if is_open and self._progress.get("channel") and await self._setup.has_token():
            await self._post()

    async def ask(self, terminal: SetupTerminal) -> None:
        """Offer to post the message."""
        if self._progress.get("channel") in ("", SKIPPED):
            terminal.warn(f"There is no channel yet: countersign setup {self._setup.subject} --redo channel")
            return
        channel = self._progress.get("channel_name")
        if not await terminal.confirm(f"Let the bot introduce itself in #{channel}?"):
            self._progress.save(message=SKIPPED)
            terminal.report_done("Nothing was posted.")
            return
        await self._post()
        terminal.report_done(f"It is in #{channel}: it says what to try.")

    async def _post(self) -> None:
        settings = self._values.settings()
        with use_locale(Locale(settings.language, settings.time_zone)):
            message = await self._post_in(self._progress.get("channel"))
        self._progress.save(message=message)

    @abstractmethod
    async def _post_in(self, channel: str) -> str:
        """Post the message in a channel, and return its ref. Raises DeliveryFailed."""
