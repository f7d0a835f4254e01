"""Slack's events: the inner events, and the apps that receive them."""

from __future__ import annotations

from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.places import Channel
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.workspace import Workspace, mentioned_users

SUBSCRIPTIONS = {"channel": "message.channels", "group": "message.groups", "im": "message.im", "mpim": "message.mpim"}
PRIVATE_FIELDS = ("reactions",)


def announce_message(world: SlackState, workspace: Workspace, message: Message) -> None:
    """Send the events of a posted message: `message`, and `app_mention` with the same ts if it mentions the app."""
    channel = workspace.channel(message.channel)
    event = _inner(workspace, message) | _whereabouts(channel, message.ts)
    if message.files and not message.subtype:
        event["subtype"] = "file_share"
    mention = {"type": "app_mention"} | {k: v for k, v in event.items() if k not in {"type", "subtype", "channel_type"}}
    told = [(SUBSCRIPTIONS[channel.kind], event)]
    if _mentions_app(world, workspace, message, channel):
        told.insert(0 if world.app.mention_first else 1, ("app_mention", mention))
    for subscription, inner in told:
        _tell(world, workspace, channel, subscription, inner)


def announce_edit(world: SlackState, workspace: Workspace, message: Message, before: Json) -> None:
    """Send the events of an edited message: `message_changed`, and `app_mention` with `edited` if its text now mentions
    the app.
    """
    channel = workspace.channel(message.channel)
    ts = workspace.new_ts()
    event: Json = {
        "type": "message",
        "subtype": "message_changed",
        "message": _inner(workspace, message),
        "previous_message": before,
        "hidden": True,
        "ts": ts,
    } | _whereabouts(channel, ts)
    by_person = not message.bot_id and message.edited is not None
    if by_person and _mentions_app(world, workspace, message, channel):
        mention = _inner(workspace, message) | {"type": "app_mention"} | _whereabouts(channel, ts)
        mention.pop("channel_type")
        _tell(world, workspace, channel, "app_mention", mention)
    _tell(world, workspace, channel, SUBSCRIPTIONS[channel.kind], event)


def announce_deletion(world: SlackState, workspace: Workspace, message: Message, before: Json) -> None:
    """Send the event of a deleted message: `message_deleted`, or, if it has replies, its change into a tombstone."""
    channel = workspace.channel(message.channel)
    ts = workspace.new_ts()
    event: Json = {
        "type": "message",
        "subtype": "message_deleted",
        "previous_message": before,
        "deleted_ts": message.ts,
        "hidden": True,
        "ts": ts,
    } | _whereabouts(channel, ts)
    if message.subtype == "tombstone":
        event = event | {"subtype": "message_changed", "message": _inner(workspace, message)}
        del event["deleted_ts"]
    _tell(world, workspace, channel, SUBSCRIPTIONS[channel.kind], event)


def tell(world: SlackState, workspace: Workspace, subscription: str, event: Json) -> None:
    """Any other event, if the app subscribed to it."""
    if world.app.hears(subscription, workspace.team.id):
        world.emit(workspace, subscription, event)


def _inner(workspace: Workspace, message: Message) -> Json:
    inner = {key: value for key, value in message.to_json().items() if key not in PRIVATE_FIELDS}
    if message.team != workspace.team.id:
        inner |= {"user_team": message.team, "source_team": message.team, "user_profile": {"team": message.team}}
    parent = workspace.messages.get(message.channel, {}).get(message.root)
    if parent is not None and parent is not message:
        inner["parent_user_id"] = parent.user
    return inner


def _whereabouts(channel: Channel, ts: str) -> Json:
    return {"channel": channel.id, "event_ts": ts, "channel_type": channel.kind}


def _mentions_app(world: SlackState, workspace: Workspace, message: Message, channel: Channel) -> bool:
    installation = world.app.installations.get(workspace.team.id)
    return installation is not None and channel.kind != "im" and installation.bot.id in mentioned_users(message.text)


def _tell(world: SlackState, workspace: Workspace, channel: Channel, subscription: str, event: Json) -> None:
    installation = world.app.installations.get(workspace.team.id)
    if installation is not None and installation.bot.id in channel.members:
        tell(world, workspace, subscription, event)
