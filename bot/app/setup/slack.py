"""Steps of `countersign setup slack`. Those of the app and its tokens are in `slack_app`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from time import monotonic

from bot.app.setup.slack_app import (
    MEMBER_ID,
    AppStep,
    BotToken,
    ConnectionStep,
    SlackSetup,
    SlackStep,
    TokenStep,
)
from bot.app.setup.steps import (
    OPEN,
    SKIPPED,
    PlatformAdminsStep,
    PlatformMessageStep,
    Step,
    StepState,
    StepStatus,
    done_state,
)
from bot.app.setup.values import Progress, SetupOptions, SetupValues, env_file, split_names
from bot.app.slack import serves_installations
from bot.errors import CountersignError, NotFound, SettingsError
from bot.platforms.console.prompts import SetupTerminal
from bot.platforms.slack.setup import (
    Channel,
    User,
    find_channel,
    find_group,
    find_users,
    list_joined_channels,
    post_first_message,
    try_join,
)
from bot.platforms.slack.web_api import SlackWebApiError, WebApi

POLL_SECONDS = 2.0
"""Seconds between two requests for the bot's channels; Slack allows fifty a minute."""

# -------------------- people


class AdminsStep(PlatformAdminsStep[SlackSetup]):
    """Administrators and approvers."""

    label = "Slack"
    default_admins = "The admins and owners of the workspace administer and approve."

    async def guide(self) -> Sequence[str]:
        """Return the variables that name them."""
        return [
            f"Write to {env_file()}: ADMINS=slack:U… (your member id: {MEMBER_ID}),",
            "and who else may approve: APPROVERS=slack:U…,slack-group:S…",
            "Without ADMINS, the admins and owners of the workspace administer and approve.",
            "Or let the setup look them up: --admin E-MAIL, NAME, ID or workspace,",
            "--approver E-MAIL, NAME, ID or @GROUP.",
        ]

    async def _find_principals(self, admins: Sequence[str], approvers: Sequence[str]) -> tuple[list[str], list[str]]:
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            return (
                [self._principal(await _find_person(api, name), token) for name in admins],
                [await self._approver(api, name, token) for name in approvers],
            )

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for an administrator and for further approvers."""
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
                self._leave_to_platform()
                terminal.report_done(self._default_text(others))
                return
            person = await _choose_person(terminal, await _find_people(api, typed), typed)
            approvers = await self._ask_approvers(terminal, api, token)
        self._save([self._principal(person, token)], approvers)
        terminal.report_done(
            f"{person.name} ({person.id}), {person.role} of the workspace, administers. It is in {env_file()}."
        )

    async def _ask_approvers(self, terminal: SetupTerminal, api: WebApi, token: BotToken) -> list[str]:
        while True:
            typed = await terminal.ask(
                "Who else may approve calls? People or @groups, with commas", shown_default="nobody else"
            )
            try:
                return [await self._approver(api, name, token) for name in split_names(typed)]
            except CountersignError as error:
                terminal.report_error(str(error.detailed_cause), str(error.fix))

    async def _approver(self, api: WebApi, word: str, token: BotToken) -> str:
        if word.startswith("@") or re.fullmatch(r"S[A-Z0-9]{7,}", word):
            if group := await find_group(api, word):
                return self._name("slack-group", token, group)
            if re.fullmatch(r"S[A-Z0-9]{7,}", word):
                raise NotFound(f"There is no user group {word[:40]!r}.", "write its handle, such as @ops")
        return self._principal(await _find_person(api, word), token)

    def _principal(self, person: User, token: BotToken) -> str:
        return self._name("slack", token, person.id)

    def _name(self, kind: str, token: BotToken, own_id: str) -> str:
        several = serves_installations(self._values.settings())
        return f"{kind}:{token.identity.team}:{own_id}" if several else f"{kind}:{own_id}"


async def _find_people(api: WebApi, typed: str) -> Sequence[User]:
    try:
        people = await find_users(api, typed)
    except SlackWebApiError as error:
        match error.code:
            case "missing_scope":
                cause = "The app may not look up people that way: it lacks a scope, such as users:read.email."
                raise SettingsError(cause, f"write the member id: {MEMBER_ID}") from error
            case "users_not_found" | "user_not_found" | "user_not_visible":
                people = []
            case _:
                raise
    if not people:
        raise NotFound(f"Slack knows nobody called {typed[:60]!r} in this workspace.", f"write the id: {MEMBER_ID}")
    return people


async def _find_person(api: WebApi, typed: str) -> User:
    people = await _find_people(api, typed)
    if len(people) > 1:
        ids = ", ".join(person.id for person in people[:5])
        raise SettingsError(f"{len(people)} people are called {typed[:60]!r}: {ids}.", "write the id of one of them")
    return people[0]


async def _choose_person(terminal: SetupTerminal, people: Sequence[User], typed: str) -> User:
    if len(people) > 1:
        options = [(person, f"{person.name} ({person.id}), {person.role}") for person in people[:9]]
        return await terminal.choose(f"Which {typed[:60]}?", options)
    if not await terminal.confirm(f"{people[0].name} ({people[0].id}), {people[0].role}: is that you?"):
        raise NotFound("That is another person.", f"write your member id: {MEMBER_ID}")
    return people[0]


# -------------------- the channel


class ChannelStep(SlackStep):
    """A channel that the bot is in."""

    name, title = "channel", "Invite the bot into a channel"

    async def inspect(self) -> StepState:
        """Return the channel of --channel or of the setup. The step is done while the bot is in it."""
        wanted = self._options.channel or self._progress.get("channel")
        if wanted == SKIPPED:
            return done_state("You left it for later: type /invite and the bot's name in a channel.")
        if not await self._setup.has_token() or not wanted:
            return OPEN
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
        if channel is None or not channel.member:
            return StepState(StepStatus.OPEN, f"The bot is not in {wanted} yet.")
        return done_state(f"The bot is in #{channel.name}.")

    async def guide(self) -> Sequence[str]:
        """Return the command that invites the bot."""
        name = self._setup.checked[self._setup.token].identity.name if self._setup.token in self._setup.checked else ""
        return [
            f"In a channel of Slack type: /invite @{name or self._setup.name.lower()}",
            "Then say which it is: --channel #NAME or ID. With the scope channels:join, --write lets the bot join it.",
        ]

    async def apply(self) -> None:
        """Join the channel of --channel, if the app may."""
        wanted = self._options.channel
        if wanted == SKIPPED:
            self._progress.save(channel=SKIPPED, message=SKIPPED)
        if wanted in ("", SKIPPED) or not await self._setup.has_token():
            return
        async with self._setup.api() as api:
            channel = await find_channel(api, wanted)
            if channel is not None and (channel.member or await try_join(api, channel)):
                self._save_channel(channel.id, channel.name)

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for a channel and join it, or wait until the bot was invited."""
        token = await self._setup.require_token()
        async with self._setup.api() as api:
            before_id = self._progress.get("channel").replace(SKIPPED, "")
            wanted = self._options.channel or await terminal.ask(
                "Channel, #name or id, or skip", before_id, shown_default="wherever you invite it"
            )
            if wanted == SKIPPED:
                self._progress.save(channel=SKIPPED, message=SKIPPED)
                terminal.report_done(f"Later: in a channel, type /invite @{token.identity.name}")
                return
            before = {channel.id for channel in await list_joined_channels(api)}
            channel = await find_channel(api, wanted) if wanted else None
            if channel is not None and not channel.member and await try_join(api, channel):
                terminal.say("The bot joined it by itself.")
                channel = Channel(channel.id, channel.name, channel.private, member=True)
            if channel is None or not channel.member:
                where = f"#{channel.name}" if channel is not None else wanted or "any channel"
                terminal.say(f"In Slack, in {where}, type:")
                terminal.print(f"\n    /invite @{token.identity.name}\n")
                channel = await self._wait(terminal, api, channel.id if channel is not None else wanted, before)
        self._save_channel(channel.id, channel.name)
        terminal.report_done(f"The bot is in #{channel.name}.")

    async def _wait(self, terminal: SetupTerminal, api: WebApi, wanted: str, before: set[str]) -> Channel:
        """Wait until the bot is in the wanted channel, or in one more than before. Raises SettingsError after
        `options.wait` seconds.
        """
        terminal.say(f"Waiting for it, {self._options.wait:.0f} seconds at most. Ctrl-C stops.")
        name, until = wanted.lstrip("#").casefold(), monotonic() + self._options.wait
        while monotonic() < until:
            joined = await list_joined_channels(api)
            for channel in joined:
                if (name and name in (channel.id.casefold(), channel.name.casefold())) or (
                    not name and channel.id not in before
                ):
                    return channel
            await asyncio.sleep(POLL_SECONDS)
        where = wanted or "a channel"
        raise SettingsError(f"The bot was not invited into {where} yet.", "type the line above in Slack")


class MessageStep(PlatformMessageStep[SlackSetup]):
    """The first message."""

    async def _post_in(self, channel: str) -> str:
        async with self._setup.api() as api:
            return await post_first_message(api, channel, commands="commands" not in self._setup.without)


def steps(values: SetupValues, progress: Progress, options: SetupOptions) -> Sequence[Step]:
    """Return the steps in their order."""
    setup = SlackSetup(values, progress, options)
    kinds = (AppStep, TokenStep, ConnectionStep, AdminsStep, ChannelStep, MessageStep)
    return [kind(setup) for kind in kinds]
