"""The last steps of `countersign setup slack`: people, a channel, and the first message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from time import monotonic

from bot.app.setup.options import WORKSPACE
from bot.app.setup.slack_context import MEMBER_ID, SKIPPED, BotToken, SlackStep
from bot.app.setup.steps import OPEN, StepState, StepStatus, done
from bot.app.setup.values import env_file
from bot.app.slack import serves_installations
from bot.domain.locales import Locale, use_locale
from bot.errors import CountersignError, NotFound, SettingsError
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.slack.setup import (
    Channel,
    User,
    find_channel,
    find_group,
    find_users,
    joined_channels,
    post_first_message,
    try_join,
)
from bot.platforms.slack.web_api import SlackWebApiError, WebApi

LOOK_SECONDS = 2.0
"""Seconds between two looks for a membership; Slack allows fifty a minute."""

# -------------------- people


class AdminsStep(SlackStep):
    """Administrators and approvers."""

    name, title = "admins", "Administrators and approvers"

    async def look(self) -> StepState:
        """They are chosen if ADMINS names somebody of Slack, or if that was left to the workspace."""
        settings = self._values.settings()
        admins = sorted(name for name in settings.admins if name.startswith("slack"))
        if admins:
            approvers = sorted(name for name in settings.approvers if name.startswith("slack"))
            more = f" Approvers: {', '.join(approvers)}." if approvers else ""
            return done(f"Administrators: {', '.join(admins)}.{more}")
        if self._progress.get("admins") == "workspace":
            return done(_nobody_named(settings.admins))
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Say which variables name them."""
        return [
            f"Write to {env_file()}: ADMINS=slack:U… (your member id: {MEMBER_ID}),",
            "and who else may approve: APPROVERS=slack:U…,slack-group:S…",
            "Without ADMINS, the admins and owners of the workspace administer and approve.",
            "Or let the setup look them up: --admin E-MAIL, NAME, ID or workspace,",
            "--approver E-MAIL, NAME, ID or @GROUP.",
        ]

    async def apply(self) -> None:
        """Save who was named by an option."""
        if not self._options.admin and not self._options.approvers:
            return
        if self._options.admin == WORKSPACE:
            self._progress.note(admins="workspace")
        named = self._options.admin if self._options.admin != WORKSPACE else ""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            admins = [self._principal(await _only(api, named), token)] if named else []
            approvers = [await self._approver(api, name, token) for name in self._options.approvers]
        self._save(admins, approvers)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask who administers, and who else approves."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            terminal.say(
                "Administrators add servers and approve calls. Who are you in Slack? Your member id is safest: "
                f"{MEMBER_ID}. An e-mail address or a name works as well.",
            )
            others = self._values.settings().admins
            left = "leave it to those of ADMINS" if others else "leave it to the workspace's admins and owners"
            typed = await terminal.ask("You in Slack", shown_default=left)
            if not typed:
                self._progress.note(admins="workspace")
                terminal.done(_nobody_named(others))
                return
            person = await _choose(terminal, await _found(api, typed), typed)
            approvers = await self._ask_approvers(terminal, api, token)
        self._save([self._principal(person, token)], approvers)
        terminal.done(
            f"{person.name} ({person.id}), {person.role} of the workspace, administers. It is in {env_file()}."
        )

    async def _ask_approvers(self, terminal: SetupTerminal, api: WebApi, token: BotToken) -> list[str]:
        while True:
            typed = await terminal.ask(
                "Who else may approve calls? People or @groups, with commas", shown_default="nobody else"
            )
            try:
                words = [word for word in (part.strip() for part in typed.split(",")) if word]
                return [await self._approver(api, word, token) for word in words]
            except CountersignError as error:
                terminal.wrong(str(error.detailed_cause), str(error.fix))

    async def _approver(self, api: WebApi, word: str, token: BotToken) -> str:
        if word.startswith("@") or re.fullmatch(r"S[A-Z0-9]{7,}", word):
            if group := await find_group(api, word):
                return self._name("slack-group", token, group)
            if re.fullmatch(r"S[A-Z0-9]{7,}", word):
                raise NotFound(f"There is no user group {word[:40]!r}.", "write its handle, such as @ops")
        return self._principal(await _only(api, word), token)

    def _principal(self, person: User, token: BotToken) -> str:
        return self._name("slack", token, person.id)

    def _name(self, kind: str, token: BotToken, own_id: str) -> str:
        several = serves_installations(self._values.settings())
        return f"{kind}:{token.identity.team}:{own_id}" if several else f"{kind}:{own_id}"

    def _save(self, admins: Sequence[str], approvers: Sequence[str]) -> None:
        added = {"ADMINS": admins, "APPROVERS": approvers}
        self._values.save({name: self._values.with_names(name, more) for name, more in added.items() if more})


def _nobody_named(admins: Collection[str]) -> str:
    """Return who administers if ADMINS names nobody of Slack."""
    if admins:
        return f"ADMINS names nobody of Slack: only {', '.join(sorted(admins))} may administer."
    return "The admins and owners of the workspace administer and approve."


async def _found(api: WebApi, typed: str) -> Sequence[User]:
    try:
        people = await find_users(api, typed)
    except SlackWebApiError as error:
        match error.code:
            case "missing_scope":
                what = "The app may not look up people that way: it lacks a scope, such as users:read.email."
                raise SettingsError(what, f"write the member id: {MEMBER_ID}") from error
            case "users_not_found" | "user_not_found" | "user_not_visible":
                people = []
            case _:
                raise
    if not people:
        raise NotFound(f"Slack knows nobody called {typed[:60]!r} in this workspace.", f"write the id: {MEMBER_ID}")
    return people


async def _only(api: WebApi, typed: str) -> User:
    people = await _found(api, typed)
    if len(people) > 1:
        ids = ", ".join(person.id for person in people[:5])
        raise SettingsError(f"{len(people)} people are called {typed[:60]!r}: {ids}.", "write the id of one of them")
    return people[0]


async def _choose(terminal: SetupTerminal, people: Sequence[User], typed: str) -> User:
    if len(people) > 1:
        options = [(person, f"{person.name} ({person.id}), {person.role}") for person in people[:9]]
        return await terminal.choose(f"Which {typed[:60]}?", options)
    if not await terminal.confirm(f"{people[0].name} ({people[0].id}), {people[0].role}: is that you?"):
        raise NotFound("That is somebody else.", f"write your member id: {MEMBER_ID}")
    return people[0]


# -------------------- the channel


class ChannelStep(SlackStep):
    """A channel that the bot is in."""

    name, title = "channel", "Invite the bot into a channel"

    async def look(self) -> StepState:
        """It is done while the bot is in the channel of the setup, or in the one of --channel."""
        wanted = self._options.channel or self._progress.get("channel")
        if wanted == SKIPPED:
            return done("You left it for later: type /invite and the bot's name in a channel.")
        if not await self._has_token() or not wanted:
            return OPEN
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
        if channel is None or not channel.member:
            return StepState(StepStatus.OPEN, f"The bot is not in {wanted} yet.")
        return done(f"The bot is in #{channel.name}.")

    async def guide(self) -> Sequence[str]:
        """Say what to type."""
        name = self._setup.checked[self._setup.token].identity.name if self._setup.token in self._setup.checked else ""
        return [
            f"In a channel of Slack type: /invite @{name or self._setup.name.lower()}",
            "Then say which it is: --channel #NAME or ID. With the scope channels:join, --write lets the bot join it.",
        ]

    async def apply(self) -> None:
        """Join the channel of --channel, if the app may."""
        wanted = self._options.channel
        if wanted == SKIPPED:
            self._progress.note(channel=SKIPPED, message=SKIPPED)
        if wanted in ("", SKIPPED) or not await self._has_token():
            return
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
            if channel is not None and (channel.member or await try_join(api, channel)):
                self._note(channel)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for a channel, join it or say what to type, and wait until the bot is in it."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            before_id = self._progress.get("channel").replace(SKIPPED, "")
            wanted = self._options.channel or await terminal.ask(
                "Channel, #name or id, or skip", before_id, shown_default="wherever you invite it"
            )
            if wanted == SKIPPED:
                self._progress.note(channel=SKIPPED, message=SKIPPED)
                terminal.done(f"Later: in a channel, type /invite @{token.identity.name}")
                return
            before = {channel.id for channel in await joined_channels(api)}
            channel = await find_channel(api, wanted) if wanted else None
            if channel is not None and not channel.member and await try_join(api, channel):
                terminal.say("The bot joined it by itself.")
                channel = Channel(channel.id, channel.name, channel.private, member=True)
            if channel is None or not channel.member:
                where = f"#{channel.name}" if channel is not None else wanted or "any channel"
                terminal.say(f"In Slack, in {where}, type:")
                terminal.print(f"\n    /invite @{token.identity.name}\n")
                channel = await self._wait(terminal, api, channel.id if channel is not None else wanted, before)
        self._note(channel)
        terminal.done(f"The bot is in #{channel.name}.")

    async def _wait(self, terminal: SetupTerminal, api: WebApi, wanted: str, before: set[str]) -> Channel:
        """Wait until the bot is in the wanted channel, or in a further one. Raises SettingsError after a while."""
        terminal.say(f"Waiting for it, {self._options.wait:.0f} seconds at most. Ctrl-C stops.")
        name, until = wanted.lstrip("#").casefold(), monotonic() + self._options.wait
        while monotonic() < until:
            joined = await joined_channels(api)
            for channel in joined:
                if (name and name in (channel.id.casefold(), channel.name.casefold())) or (
                    not name and channel.id not in before
                ):
                    return channel
            await asyncio.sleep(LOOK_SECONDS)
        where = wanted or "a channel"
        raise SettingsError(f"The bot was not invited into {where} so far.", "type the line above in Slack")

    def _note(self, channel: Channel) -> None:
        changed = channel.id != self._progress.get("channel")
        self._progress.note(channel=channel.id, channel_name=channel.name, **({"message": ""} if changed else {}))


class MessageStep(SlackStep):
    """The first message."""

    name, title = "message", "First message"

    async def look(self) -> StepState:
        """It is posted once in the channel of the setup."""
        if self._progress.get("message") == SKIPPED or not self._options.message:
            return done("Nothing was posted, as you chose.")
        if self._progress.get("message"):
            return done(f"It is in #{self._progress.get('channel_name')}.")
        return OPEN

    async def guide(self) -> Sequence[str]:
        """Say what it is for."""
        return ["The bot introduces itself in the channel, with what to try. --write posts it."]

    async def apply(self) -> None:
        """Post it in the channel that the bot is in."""
        is_open = self._options.message and not self._progress.get("message")
        if is_open and self._progress.get("channel") and await self._has_token():
            await self._post()

    async def ask(self, terminal: SetupTerminal) -> None:
        """Post it, unless the person does not want that."""
        if self._progress.get("channel") in ("", SKIPPED):
            terminal.warn("There is no channel yet: countersign setup slack --redo channel")
            return
        channel = self._progress.get("channel_name")
        if not await terminal.confirm(f"Let the bot introduce itself in #{channel}?"):
            self._progress.note(message=SKIPPED)
            terminal.done("Nothing was posted.")
            return
        await self._post()
        terminal.done(f"It is in #{channel}: it says what to try.")

    async def _post(self) -> None:
        settings = self._values.settings()
        with use_locale(Locale(settings.language, settings.time_zone)):
            await self._post_in_language()

    async def _post_in_language(self) -> None:
        async with self._setup.api() as api:
            ref = await post_first_message(
                api, self._progress.get("channel"), commands="commands" not in self._setup.without
            )
        self._progress.note(message=ref)
