"""User actions: buttons, selects, modals, commands and shortcuts, with the app's response."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from tests.fakes.slack.controls import Control, State, beginning, element_state, empty, find
from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.envelopes import Envelopes
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.modals import View
from tests.fakes.slack.people import Team, User
from tests.fakes.slack.places import Channel
from tests.fakes.slack.responses import ResponseUrl, answer_with
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.user_messages import UserMessages
from tests.fakes.slack.view_shapes import checked_view

Values = Mapping[str, str | list[str] | None]


class UserActions(UserMessages):
    """Interactions. Each waits for the app's acknowledgement, at most as long as Slack does, and applies its answer."""

    def __init__(self, world: SlackState, team: Team, envelopes: Envelopes) -> None:
        super().__init__(world, team)
        self._envelopes = envelopes
        self._states: dict[tuple[str, str], State] = {}

    async def press(
        self, user: User, on: Message | View, name: str, *, as_of: Json | None = None, hidden: bool = False
    ) -> Delivery:
        """Press a button by its action id, text or value.

        `as_of` is an entry of `message.past`, as on an outdated screen. `hidden` also allows hidden buttons.

        Raises:
            LookupError: the user sees no such button.
        """
        assert isinstance(on, View) or on.ephemeral_to in {"", user.id}, f"{user.name} does not see this message"
        return await self._choose(user, on, name, as_of=as_of, hidden=hidden)

    async def choose(self, user: User, on: Message | View, name: str, *values: str) -> Delivery:
        """Choose from a select, an overflow menu, checkboxes or radio buttons, by value or text of the options."""
        return await self._choose(user, on, name, *values)

    async def _choose(
        self,
        user: User,
        on: Message | View,
        name: str,
        *values: str,
        as_of: Json | None = None,
        hidden: bool = False,
    ) -> Delivery:
        blocks = self._blocks(on, as_of)
        control = find(blocks, name, None if hidden else user.id)
        state = self._state(user, on, blocks)
        action = {"action_id": control.element["action_id"], "block_id": control.block["block_id"]}
        action |= self._use_control(control, name, values, state) | {"action_ts": self._workspace(on).new_ts()}
        action["type"] = control.element["type"]
        payload = self._interaction_payload(user, on, "block_actions", as_of) | {
            "state": {"values": copy.deepcopy(state)},
            "actions": [action],
        }
        return await self._done(self._envelopes.interaction(payload))

    async def submit(self, user: User, values: Values | None = None, view: View | None = None) -> Delivery:
        """Fill in and submit the modal that is on top; inputs are named by action id, block id or label.

        Raises:
            LookupError: there is no such input, or one that is needed is empty; Slack's client would not send it.
        """
        view = view or self.modal(user)
        blocks = view.drawn["blocks"]
        state = self._state(user, view, blocks)
        for name, value in (values or {}).items():
            control = find(blocks, name, user.id)
            given = value if isinstance(value, list) else [] if value is None else [value]
            state[control.block["block_id"]][control.element["action_id"]] = element_state(control.element, *given)
        for block in blocks:
            held = next(iter(state.get(block["block_id"], {}).values()), {})
            if block["type"] == "input" and not block.get("optional") and empty(held):
                raise LookupError(f"please complete this required field: {block['label']['text']}")
        described = view.to_json() | {"state": {"values": copy.deepcopy(state)}}
        payload = self._person(user, view.team) | {
            "type": "view_submission",
            "trigger_id": self.world.modals.trigger(user.id, view.team, view.id),
            "view": described,
            "response_urls": [],
        }
        delivery = await self._done(self._envelopes.interaction(payload))
        if delivery.is_acknowledged:
            self._apply_answer(user, view, delivery.answer)
        return delivery

    def modal(self, user: User) -> View:
        """Return the modal on top.

        Raises:
            LookupError: the user has no open modal.
        """
        stack = self.world.modals.stacks.get(user.id)
        if not stack:
            raise LookupError(f"{user.name} has no modal open")
        return stack[-1]

    async def close_modal(self, user: User) -> Delivery | None:
        """Close the modal that is on top. The app gets the event only if the view has `notify_on_close`."""
        view = self.modal(user)
        self.world.modals.stacks[user.id].remove(view)
        if not view.drawn.get("notify_on_close"):
            return None
        payload = self._person(user, view.team) | {
            "type": "view_closed",
            "view": view.to_json(),
            "is_cleared": False,
        }
        return await self._done(self._envelopes.interaction(payload))

    async def command(self, user: User, command: str, text: str, channel: Channel) -> Delivery:
        """Type a slash command into a channel; Slack has none in threads."""
        if command not in self.world.app.commands:
            raise LookupError(f"{command} is not a valid command")
        workspace = self.world.workspaces[channel.team.id]
        urls = self.world.response_urls
        url = urls.issue(self.world, workspace.team.id, user.id, channel.id)
        payload: Json = {
            "token": self.world.app.verification_token,
            "team_id": user.team.id,
            "team_domain": user.team.domain,
            "channel_id": channel.id,
            "channel_name": "directmessage" if channel.kind == "im" else channel.name,
            "user_id": user.id,
            "user_name": user.name.lower(),
            "command": command,
            "text": text,
            "api_app_id": self.world.app.id,
            "is_enterprise_install": str(bool(self.world.app.installations[workspace.team.id].organization)).lower(),
            **({"enterprise_id": workspace.team.enterprise} if workspace.team.enterprise else {}),
            "response_url": url,
            "trigger_id": self.world.modals.trigger(user.id, workspace.team.id),
        }
        delivery = await self._done(self._envelopes.command(payload))
        answer = delivery.answer
        if answer:
            given = {"text": answer} if isinstance(answer, str) else answer
            target = ResponseUrl(workspace.team.id, user.id, channel.id, None, 0, 1)
            answer_with(self.world, target, given)
        return delivery

    async def shortcut(self, user: User, callback_id: str, message: Message | None = None) -> Delivery:
        """Use a shortcut, on a message or anywhere."""
        if callback_id not in self.world.app.shortcuts:
            raise LookupError(f"there is no shortcut {callback_id}")
        workspace = self._workspace(message) if message else self.world.workspaces[user.team.id]
        payload = self._person(user, workspace.team.id) | {
            "type": "shortcut",
            "callback_id": callback_id,
            "action_ts": workspace.new_ts(),
            "trigger_id": self.world.modals.trigger(user.id, workspace.team.id),
        }
        if message is not None:
            channel = workspace.channel(message.channel)
            payload |= {
                "type": "message_action",
                "channel": {"id": channel.id, "name": channel.name or "directmessage"},
                "message_ts": message.ts,
                "message": message.to_json(),
                "response_url": self.world.response_urls.issue(
                    self.world, workspace.team.id, user.id, channel.id, message
                ),
            }
        return await self._done(self._envelopes.interaction(payload))

    async def _done(self, delivery: Delivery) -> Delivery:
        await delivery.settled.wait()
        return delivery

    def _apply_answer(self, user: User, view: View, answer: Json | str | None) -> None:
        modals, stack = self.world.modals, self.world.modals.stacks[user.id]
        match answer if isinstance(answer, dict) else {}:
            case {"response_action": "errors", "errors": dict(errors)}:
                known = {block["block_id"] for block in view.drawn["blocks"] if block["type"] == "input"}
                assert errors.keys() <= known, f"errors for blocks that are no inputs here: {errors.keys() - known}"
                view.errors = errors
            case {"response_action": "update", "view": drawn}:
                modals.change(view, checked_view(drawn, "modal"))
            case {"response_action": "push", "view": drawn}:
                checked = checked_view(drawn, "modal")
                modals.open(user.id, view.team, checked, view.app_id, view.bot_id, onto=view.id)
            case {"response_action": "clear"}:
                stack.clear()
            case {"response_action": _} as unknown:
                raise AssertionError(f"Slack knows no such answer: {unknown}")
            case _:
                if view in stack:
                    stack.remove(view)

    def _interaction_payload(self, user: User, on: Message | View, kind: str, as_of: Json | None) -> Json:
        workspace, modals = self._workspace(on), self.world.modals
        payload = self._person(user, workspace.team.id) | {"type": kind}
        if isinstance(on, View):
            return payload | {
                "container": {"type": "view", "view_id": on.id},
                "view": on.to_json() | {"state": {"values": self._state(user, on, on.drawn["blocks"])}},
                "trigger_id": modals.trigger(user.id, workspace.team.id, on.id if on.drawn["type"] == "modal" else ""),
            }
        channel = workspace.channel(on.channel)
        container: Json = {
            "type": "message",
            "message_ts": on.ts,
            "channel_id": channel.id,
            "is_ephemeral": bool(on.ephemeral_to),
        }
        payload |= {
            "container": container | ({"thread_ts": on.thread_ts} if on.thread_ts else {}),
            "channel": {"id": channel.id, "name": "directmessage" if channel.kind == "im" else channel.name},
            "trigger_id": modals.trigger(user.id, workspace.team.id),
        }
        if kind == "block_actions":
            urls = self.world.response_urls
            payload["response_url"] = urls.issue(self.world, workspace.team.id, user.id, channel.id, on)
        return payload if on.ephemeral_to else payload | {"message": as_of or on.to_json()}

    def _person(self, user: User, team: str) -> Json:
        found = self.world.workspaces[team].team
        handle = user.name.lower()
        return {
            "user": {"id": user.id, "username": handle, "name": handle, "team_id": user.team.id},
            "api_app_id": self.world.app.id,
            "token": self.world.app.verification_token,
            "team": {"id": found.id, "domain": found.domain},
            "enterprise": {"id": found.enterprise, "name": found.enterprise} if found.enterprise else None,
            "is_enterprise_install": bool(self.world.app.installations[team].organization),
        }

    def _use_control(self, control: Control, name: str, values: tuple[str, ...], state: State) -> Json:
        element = control.element
        match element["type"]:
            case "button" | "icon_button":
                return {key: value for key, value in element.items() if key in {"text", "value", "style"}}
            case "feedback_buttons":
                sides = (element["positive_button"], element["negative_button"])
                side = next(s for s in sides if (values or (name,))[0] in {s["value"], s["text"]["text"]})
                return {"text": side["text"], "value": side["value"]}
            case "overflow":
                return element_state(element, *values)
            case _:
                held = element_state(element, *values)
                state[control.block["block_id"]][element["action_id"]] = held
                return held

    def _state(self, user: User, on: Message | View, blocks: list[Json]) -> State:
        surface = on.id if isinstance(on, View) else f"{on.channel}/{on.ts}"
        fresh = beginning(blocks)
        kept = self._states.get((user.id, surface), {})
        for block_id, held in fresh.items():
            held |= {name: value for name, value in kept.get(block_id, {}).items() if name in held}
        self._states[user.id, surface] = fresh
        return fresh

    def _blocks(self, on: Message | View, as_of: Json | None) -> list[Json]:
        if isinstance(on, View):
            drawn: list[Json] = on.drawn["blocks"]
            return drawn
        blocks: list[Json] = on.blocks if as_of is None else as_of.get("blocks", [])
        return blocks
