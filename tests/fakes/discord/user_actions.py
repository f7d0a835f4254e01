"""User actions: clicks, choices, commands and submissions, with the wait for the app's response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.discord.apps import GUILD_INSTALL, USER_INSTALL
from tests.fakes.discord.commands import CHAT, GROUP, IN_DM, IN_GUILD, IN_PRIVATE, MESSAGE, SUBCOMMAND
from tests.fakes.discord.components import BUTTON, SELECT, walk
from tests.fakes.discord.interactions import Asked, Interaction, Modal
from tests.fakes.discord.messages import Message
from tests.fakes.discord.modals import Values, filled_in
from tests.fakes.discord.people import User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import Channel
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.state import DiscordState
from tests.fakes.discord.user_messages import UserMessages


class UserActions(UserMessages):
    """Interactions of users. Each method waits until the app has answered or three seconds have passed."""

    def __init__(self, world: DiscordState) -> None:
        super().__init__(world)
        self.modals: dict[str, Modal] = {}
        """The open modal of each user, by id; opening another closes the first."""

    async def press(self, user: User, message: Message, name: str, *, hidden: bool = False) -> Interaction:
        """Press a button by its label or custom id.

        `hidden` also allows a disabled button or one from before an edit, as on an outdated screen.

        Raises:
            LookupError: the button is not found.
        """
        button = _control(message, name, BUTTON, hidden=hidden)
        assert "custom_id" in button, f"{name} is a link"
        assert hidden or not button.get("disabled"), f"{name} is disabled"
        data: Json = {"component_type": BUTTON, "custom_id": button["custom_id"], "id": button.get("id", 1)}
        return await self._done(self._new(Asked.COMPONENT, user, message.channel, data, message))

    async def choose(self, user: User, message: Message, name: str, *values: Any) -> Interaction:
        """Choose from a select by its placeholder or custom id: values or labels."""
        select = _control(message, name, SELECT)
        by_name = {option["label"]: option["value"] for option in select["options"]}
        known = set(by_name.values())
        data: Json = {
            "component_type": SELECT,
            "custom_id": select["custom_id"],
            "id": select["id"],
            "values": [by_name[value] if value not in known else value for value in values],
        }
        return await self._done(self._new(Asked.COMPONENT, user, message.channel, data, message))

    async def command(
        self, user: User, words: str, channel: Channel, options: Mapping[str, Any] | None = None
    ) -> Interaction:
        """Type a slash command: `command(ana, "mcp show", channel, {"server": "github"})`.

        Raises:
            LookupError: the command is not offered to the user there, or it has no such option.
        """
        options = options or {}
        command, path, takes = self._command(user, words, channel)
        missing = [option["name"] for option in takes if option.get("required") and option["name"] not in options]
        assert not missing, f"/{words} cannot be sent without {missing}"
        data = _data(command)
        data["options"] = _nested_options(
            path, [self._fill_option(takes, name, value) for name, value in options.items()]
        )
        return await self._done(self._new(Asked.COMMAND, user, channel, data, None))

    async def suggest(
        self,
        user: User,
        words: str,
        channel: Channel,
        option: str,
        typed: str = "",
        *,
        others: Mapping[str, Any] | None = None,
    ) -> list[Json]:
        """Type into an option with autocomplete, perhaps with others filled in before. Return the app's choices."""
        command, path, takes = self._command(user, words, channel)
        data = _data(command)
        found = next(each for each in takes if each["name"] == option)
        assert found.get("autocomplete"), f"{option} has no autocomplete"
        given = [self._fill_option(takes, name, value) for name, value in (others or {}).items()]
        given.append({"type": found["type"], "name": option, "value": typed, "focused": True})
        data |= {"options": _nested_options(path, given), "focused_type": found["type"]}
        return (await self._done(self._new(Asked.AUTOCOMPLETE, user, channel, data, None))).choices

    async def shortcut(self, user: User, name: str, message: Message) -> Interaction:
        """Use a command of a message's context menu."""
        command = self._find_command(user, name, MESSAGE, message.channel)
        data = _data(command)
        data |= {"target_id": message.id, "resolved": {"messages": {message.id: message.to_json()}}}
        return await self._done(self._new(Asked.COMMAND, user, message.channel, data, None))

    async def submit(self, user: User, values: Values | None = None) -> Interaction:
        """Fill in and submit the modal that the user has open. Fields are named by label or custom id."""
        modal = self.modals[user.id]
        came = modal.opened_by
        data: Json = {
            "custom_id": modal.drawn["custom_id"],
            "components": filled_in(modal.drawn, values or {}),
            "resolved": {},
        }
        del self.modals[user.id]
        asked = self._new(Asked.MODAL_SUBMIT, user, came.channel, data, came.message)
        asked.opened_from = came
        return await self._done(asked)

    # How it goes out

    def _new(self, kind: Asked, user: User, channel: Channel, data: Json, message: Message | None) -> Interaction:
        world = self.world
        granted = channel.permissions(user, world.now())
        assert granted & Permission.VIEW_CHANNEL, f"{user.name} does not see {channel.name}"
        if message is not None:
            assert message.ephemeral_to in {"", user.id}, f"{user.name} does not see this message"
        interaction = Interaction(world.ids.new(), kind, user, channel, data, message=message)
        sent = {name: value for name, value in data.items() if name != "focused_type"}
        payload: Json = {
            "id": interaction.id,
            "application_id": world.app.id,
            "type": int(kind),
            "token": interaction.token,
            "version": 1,
            "data": sent,
            "channel_id": channel.id,
            "channel": channel.to_json() | {"permissions": _bits(granted)},
            "locale": user.locale,
            "entitlements": [],
            "attachment_size_limit": world.limits.attachment_size,
            "app_permissions": _bits(channel.permissions(world.bot, world.now())),
        }
        payload |= self._where(user, channel, granted)
        if message is not None:
            payload["message"] = message.to_json()
        interaction.payload = payload
        world.interactions[interaction.token] = interaction
        return interaction

    def _where(self, user: User, channel: Channel, granted: Permission) -> Json:
        owners = {"1": user.id} if user.id in self.world.app.installed_by else {}
        guild = channel.guild
        if guild is None:
            context = _context_of(channel)
            owners = {"0": "0"} | owners if context == IN_DM else owners
            return {"user": user.to_json(), "context": context, "authorizing_integration_owners": owners}
        if guild.with_bot:
            owners = {"0": guild.id} | owners
        return {
            "member": guild.members[user.id].to_json(permissions=granted),
            "guild_id": guild.id,
            "guild": {"id": guild.id, "locale": guild.locale, "features": guild.features},
            "guild_locale": guild.locale,
            "context": IN_GUILD,
            "authorizing_integration_owners": owners,
        }

    async def _done(self, interaction: Interaction) -> Interaction:
        """Send it and wait for the answer, three seconds of the clock at most."""
        world = self.world
        world.tell("INTERACTION_CREATE", interaction.payload, None, None)
        await world.clock.reach_or(interaction.at + world.limits.answer_within, interaction.settled)
        if not interaction.settled.is_set():
            interaction.settle(failed=True)
        if interaction.modal is not None:
            self.modals[interaction.user.id] = interaction.modal
        return interaction

    # Commands

    def _command(self, user: User, words: str, channel: Channel) -> tuple[Json, list[Json], list[Json]]:
        """Return a command by its words: itself, the subcommands on the way, and the options there."""
        name, *rest = words.removeprefix("/").split()
        command = self._find_command(user, name, CHAT, channel)
        path: list[Json] = []
        options = command["options"]
        for word in rest:
            step = next((each for each in options if each["name"] == word and each["type"] in {1, 2}), None)
            if step is None:
                raise LookupError(f"there is no /{words}")
            path.append(step)
            options = step.get("options") or []
        if any(option["type"] in {SUBCOMMAND, GROUP} for option in options):
            raise LookupError(f"/{words} is not a command but a group of them")
        return command, path, options

    def _find_command(self, user: User, name: str, kind: int, channel: Channel) -> Json:
        """Return a command this user can use in this place.

        Raises:
            LookupError: their client does not offer it.
        """
        offered = self.world.app.commands.get("", [])
        command = next((each for each in offered if each["name"] == name and each["type"] == kind), None)
        if command is None or not self._is_offered(user, command, channel):
            raise LookupError(f"{user.name} is offered no command {name!r} there")
        return command

    def _is_offered(self, user: User, command: Json, channel: Channel) -> bool:
        contexts, installations = command.get("contexts"), command["integration_types"]
        by_user = USER_INSTALL in installations and user.id in self.world.app.installed_by
        context = _context_of(channel)
        if contexts is not None and context not in contexts:
            return False
        with_bot = context == IN_DM if channel.guild is None else channel.guild.with_bot
        if channel.guild is None or not with_bot or GUILD_INSTALL not in installations:
            return by_user or (with_bot and GUILD_INSTALL in installations)
        granted = channel.permissions(user, self.world.now())
        needed = command.get("default_member_permissions")
        if not granted & Permission.USE_APPLICATION_COMMANDS:
            return False
        if needed is None:
            return True
        return bool(granted & Permission.ADMINISTRATOR) or (int(needed) != 0 and granted & int(needed) == int(needed))

    @staticmethod
    def _fill_option(takes: list[Json], name: str, value: Any) -> Json:
        option = next((each for each in takes if each["name"] == name), None)
        if option is None:
            raise LookupError(f"there is no option {name!r}")
        kind = option["type"]
        choices = [each["value"] for each in option.get("choices") or []]
        assert not choices or value in choices, f"{name} takes one of {choices}"
        if kind == 3:
            assert option.get("min_length", 0) <= len(value) <= option.get("max_length", 6000), f"{name}: {len(value)}"
        return {"type": kind, "name": name, "value": value}


def _data(command: Json) -> Json:
    return {"id": command["id"], "name": command["name"], "type": command["type"]}


def _context_of(channel: Channel) -> int:
    if channel.guild is not None:
        return IN_GUILD
    return IN_DM if len(channel.recipients) == 1 else IN_PRIVATE


def _nested_options(path: list[Json], options: list[Json]) -> list[Json]:
    for step in reversed(path):
        options = [{"type": step["type"], "name": step["name"], "options": options}]
    return options


def _control(message: Message, name: str, kind: int, *, hidden: bool = False) -> Json:
    controls = [node for node in walk(message.components) if node["type"] == kind]
    if hidden:
        for past in reversed(message.past):
            controls += [node for node in walk(past["components"]) if node["type"] == kind]
    for control in controls:
        if name in {control.get("label"), control.get("custom_id"), control.get("placeholder")}:
            return control
    raise LookupError(f"there is no {name!r} among {[each.get('label', each.get('custom_id')) for each in controls]}")


def _bits(permissions: Permission) -> str:
    return str(int(permissions) & ((1 << 53) - 1))
