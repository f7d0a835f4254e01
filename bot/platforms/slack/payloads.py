"""Slack's payloads of clicks, submissions and slash commands, parsed into values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.chat.actions import Action
from bot.platforms.slack.blocks import decode
from bot.platforms.slack.responders import ChannelRef, ResponseTarget


@dataclass(frozen=True, slots=True)
class ActionPayload:
    """A click on a button. `place` is its location; `view` is its modal, if any."""

    press: Action
    place: ResponseTarget
    trigger: str
    view: str = ""


@dataclass(frozen=True, slots=True)
class SlashCommandPayload:
    """A slash command."""

    command: str
    text: str
    place: ResponseTarget
    trigger: str


def read_press(body: Mapping[str, Any]) -> ActionPayload | None:
    """Parse a click. Return None if the button is not one of the bot's."""
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and actions else None
    if not isinstance(action, dict):
        return None
    press = decode(str(action.get("action_id") or ""), _value(action))
    if press is None:
        return None
    view = _dict(body, "view")
    kept = ResponseTarget.parse(str(view.get("private_metadata") or "")) if view else None
    return ActionPayload(
        press=press,
        # A window remembers where it was opened; who pressed is for Slack to say.
        place=(
            replace(kept, spot=replace(kept.spot, user=user_of(body)))
            if kept is not None
            else ResponseTarget(
                _spot(body), "" if view else str(body.get("response_url") or ""), replaces=_is_private(body)
            )
        ),
        trigger=str(body.get("trigger_id") or ""),
        view=str(view.get("id") or ""),
    )


def read_slash(body: Mapping[str, Any]) -> SlashCommandPayload:
    """Parse a slash command."""
    spot = ChannelRef(
        str(body.get("channel_id") or ""), str(body.get("user_id") or ""), str(body.get("thread_ts") or "")
    )
    return SlashCommandPayload(
        command=str(body.get("command") or "").removeprefix("/").lower(),
        text=str(body.get("text") or ""),
        place=ResponseTarget(spot, str(body.get("response_url") or "")),
        trigger=str(body.get("trigger_id") or ""),
    )


def user_of(body: Mapping[str, Any]) -> str:
    """Return the id of the user."""
    return str(_dict(body, "user").get("id") or body.get("user_id") or "")


def _spot(body: Mapping[str, Any]) -> ChannelRef:
    container, message, channel = _dict(body, "container"), _dict(body, "message"), _dict(body, "channel")
    thread = container.get("thread_ts") or message.get("thread_ts")
    if not (thread or container.get("is_ephemeral")):
        thread = message.get("ts") or container.get("message_ts")
    place = str(channel.get("id") or container.get("channel_id") or "")
    return ChannelRef(place, user_of(body), str(thread or ""))


def _is_private(body: Mapping[str, Any]) -> bool:
    """Return True if the message with the button is visible to this user only; other messages are not replaced."""
    return bool(_dict(body, "container").get("is_ephemeral")) or _spot(body).direct


def _value(action: Mapping[str, Any]) -> str:
    chosen = _dict(action, "selected_option")
    return str(chosen.get("value") or action.get("value") or "")


def _dict(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}
