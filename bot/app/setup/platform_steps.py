"""Steps that all chat platforms share: the token behind them, administrators, and the first message."""

from __future__ import annotations

import os
import sys
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from bot.app.setup.steps import OPEN, Step, StepState, done_state
from bot.app.setup.values import WORKSPACE, Progress, SetupOptions, SetupValues
from bot.domain.locales import Locale, use_locale
from bot.errors import CountersignError, SettingsError
from bot.platforms.console.prompts import SetupTerminal

SKIPPED = "skip"
_DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")

Checked = TypeVar("Checked")
"""Result of a check of the bot token."""


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
        """Offer to open a page in the browser. Return False if it is not open."""
        if not self._options.browser or not _has_browser():
            return False
        return await terminal.confirm(f"Open {page} in your browser?") and _open_url(url)

    async def _may_replace(self, terminal: SetupTerminal, name: str, entered: str) -> bool:
        """Return True if the value is new, the same as before, or may replace the old one."""
        current = self._values.get(name)
        if current in ("", entered):
            return True
        return await terminal.confirm(f"Replace the {name} that {self._values.origin(name)} has?")

    def _save_channel(self, channel_id: str, name: str) -> None:
        changed = channel_id != self._progress.get("channel")
        self._progress.save(channel=channel_id, channel_name=name, **({"message": ""} if changed else {}))


class PlatformAdminsStep(PlatformStep[Setup]):
    """Administrators and approvers."""

    name, title = "admins", "Administrators and approvers"
    label: ClassVar[str]
    default_admins: ClassVar[str]
    """Sentence with the administrators of an empty ADMINS."""

    async def inspect(self) -> StepState:
        """Return the chosen users. The step is done if ADMINS has one of the platform, or if that was left to it."""
        settings = self._values.settings()
        admins = sorted(name for name in settings.admins if name.startswith(self._setup.subject))
        if admins:
            approvers = sorted(name for name in settings.approvers if name.startswith(self._setup.subject))
            more = f" Approvers: {', '.join(approvers)}." if approvers else ""
            return done_state(f"Administrators: {', '.join(admins)}.{more}")
        if self._progress.get("admins") == WORKSPACE:
            return done_state(self._default_text(settings.admins))
        return OPEN

    def _leave_to_platform(self) -> None:
        self._progress.save(admins=WORKSPACE)

    def _default_text(self, admins: Collection[str]) -> str:
        """Return the administrators if ADMINS has no user of this platform."""
        if admins:
            return f"ADMINS names nobody of {self.label}: only {', '.join(sorted(admins))} may administer."
        return self.default_admins

    def _save(self, admins: Sequence[str], approvers: Sequence[str]) -> None:
        added = {"ADMINS": admins, "APPROVERS": approvers}
        self._values.save({name: self._values.with_names(name, more) for name, more in added.items() if more})


class PlatformMessageStep(PlatformStep[Setup]):
    """The first message, posted once in the channel of the setup."""

    name, title = "message", "First message"

    async def inspect(self) -> StepState:
        """Return the channel of the message, or that none is wanted."""
        if self._progress.get("message") == SKIPPED or not self._options.message:
            return done_state("Nothing was posted, as you chose.")
        if self._progress.get("message"):
            return done_state(f"It is in #{self._progress.get('channel_name')}.")
        return OPEN

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


def _has_browser() -> bool:
    """Return True if a browser with windows is likely: one of the terminal would cover the setup."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in _DISPLAYS) and not os.environ.get("SSH_CONNECTION")


def _open_url(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
