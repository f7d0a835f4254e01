"""conversations.info, list, join, open, history, replies; users.conversations."""

from __future__ import annotations

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.methods.pages import page_and_cursor
from tests.fakes.slack.methods.table import PAGED, method
from tests.fakes.slack.places import Channel
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller

KINDS = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
READ = ("channels:read", "groups:read", "im:read", "mpim:read")
HISTORY = ("channels:history", "groups:history", "im:history", "mpim:history")
WRITE = ("im:write", "mpim:write", "channels:manage", "groups:write")
SPAN = ("channel", "inclusive", "latest", "oldest", "include_all_metadata", *PAGED)


@method("conversations.info", "tier3", ("channel", "include_locale", "include_num_members"), *READ, json=False)
def info(caller: Caller, args: Arguments) -> Json:
    """Return a conversation."""
    channel = _readable(caller, args, "read")
    described = channel.to_json() | {"is_member": caller.bot.bot.id in channel.members}
    if args.flag("include_num_members"):
        described["num_members"] = len(channel.members)
    return {"channel": described}


TYPES = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}


@method("conversations.list", "tier2", ("types", "exclude_archived", *PAGED), *READ, json=False)
def list_conversations(caller: Caller, args: Arguments) -> Json:
    """Return the channels that the app can see, each with its membership."""
    return _channel_page(caller, args, [c for c in _visible(caller, args) if c.kind not in {"im", "mpim"}])


@method("users.conversations", "tier3", ("types", "exclude_archived", "user", *PAGED), *READ, json=False)
def users_conversations(caller: Caller, args: Arguments) -> Json:
    """The channels that the app is in."""
    return _channel_page(caller, args, [c for c in _visible(caller, args) if caller.bot.bot.id in c.members])


@method("conversations.join", "tier3", ("channel",), "channels:join")
def join(caller: Caller, args: Arguments) -> Json:
    """Come into a public channel."""
    channel = caller.workspace.channel(args.required_text("channel"))
    if channel.kind != "channel":
        raise Refused("method_not_supported_for_channel_type")
    if channel.archived:
        raise Refused("is_archived")
    if caller.bot.bot.id not in channel.members:
        channel.members.append(caller.bot.bot.id)
    return {"channel": channel.to_json() | {"is_member": True}}


def _visible(caller: Caller, args: Arguments) -> list[Channel]:
    """Return the channels of the wanted types, each of which needs its scope."""
    wanted = [kind.strip() for kind in args.text("types", "public_channel").split(",")]
    if not set(wanted) <= set(TYPES):
        raise Refused("invalid_types")
    for kind in wanted:
        _scope(caller, f"{KINDS[TYPES[kind]]}:read")
    kinds, bot = {TYPES[kind] for kind in wanted}, caller.bot.bot.id
    return [
        channel
        for channel in caller.workspace.channels.values()
        if channel.kind in kinds
        and (channel.kind == "channel" or bot in channel.members)
        and not (channel.archived and args.flag("exclude_archived"))
    ]


def _channel_page(caller: Caller, args: Arguments, channels: list[Channel]) -> Json:
    page, more = page_and_cursor(args, channels, default=100)
    described = [c.to_json() | {"is_member": caller.bot.bot.id in c.members} for c in page]
    return {"channels": described} | more


@method("conversations.open", "tier3", ("channel", "users", "return_im", "prevent_creation"), *WRITE)
def open_conversation(caller: Caller, args: Arguments) -> Json:
    """Return the direct message with a user, or with several."""
    if args.has("channel"):
        return {"channel": {"id": caller.workspace.channel(args.text("channel")).id}}
    users = [user.strip() for user in args.required_text("users").split(",") if user.strip()]
    for user in users:
        person = caller.workspace.person(user)
        if person.deleted:
            raise Refused("user_disabled")
    if len(users) > 1:
        _scope(caller, "mpim:write")
        raise invalid_arguments("the fake opens direct messages with one person only")
    _scope(caller, "im:write")
    if users == [caller.bot.bot.id]:
        raise Refused("cannot_dm_self")
    if caller.workspace.users[users[0]].bot_id:
        raise Refused("cannot_dm_bot")
    channel = caller.workspace.dm(users[0], caller.bot.bot.id)
    shown = channel.to_json() if args.flag("return_im") else {"id": channel.id}
    return {"channel": shown, "no_op": False, "already_open": False}


@method("conversations.history", "tier3", SPAN, *HISTORY, json=False)
def history(caller: Caller, args: Arguments) -> Json:
    """Return the messages outside threads, the newest first."""
    channel = _readable(caller, args, "history")
    kept = _within(args, caller.workspace.top_level(channel.id))
    page, more = page_and_cursor(args, kept[::-1], default=100, most=999)
    has_more = bool(more["response_metadata"]["next_cursor"])
    return {"messages": [_message_json(caller, args, m) for m in page], "has_more": has_more, "pin_count": 0} | more


@method("conversations.replies", "tier3", (*SPAN, "ts"), *HISTORY, json=False)
def replies(caller: Caller, args: Arguments) -> Json:
    """Return a thread, the oldest first; its first message leads every page."""
    channel = _readable(caller, args, "history")
    found = caller.workspace.messages.get(channel.id, {}).get(args.required_text("ts"))
    thread = caller.workspace.thread(channel.id, found.root) if found is not None else []
    if not thread:
        raise Refused("thread_not_found")
    first = [m for m in thread if m.ts == m.root]
    page, more = page_and_cursor(args, _within(args, [m for m in thread if m.ts != m.root]), default=1000)
    has_more = bool(more["response_metadata"]["next_cursor"])
    return {"messages": [_message_json(caller, args, m) for m in [*first, *page]], "has_more": has_more} | more


def _readable(caller: Caller, args: Arguments, what: str) -> Channel:
    channel = caller.workspace.channel(args.required_text("channel"))
    _scope(caller, f"{KINDS[channel.kind]}:{what}")
    if caller.bot.bot.id not in channel.members:
        if channel.kind != "channel":
            raise Refused("channel_not_found")
        if what == "history":
            raise Refused("not_in_channel")
    return channel


def _scope(caller: Caller, scope: str) -> None:
    if scope not in caller.bot.scopes:
        raise Refused("missing_scope", needed=scope, provided=",".join(sorted(caller.bot.scopes)))


def _within(args: Arguments, messages: list[Message]) -> list[Message]:
    oldest, latest = args.text("oldest", "0") or "0", args.text("latest")
    edge = args.flag("inclusive")

    def inside(message: Message) -> bool:
        at = _moment(message.ts)
        after = at > _moment(oldest) or (edge and at == _moment(oldest))
        before = not latest or at < _moment(latest) or (edge and at == _moment(latest))
        return after and before

    return [message for message in messages if inside(message)]


def _moment(ts: str) -> tuple[int, str]:
    seconds, _, rest = ts.partition(".")
    try:
        return int(seconds), rest.ljust(6, "0")
    except ValueError:
        raise Refused("invalid_ts_latest") from None


def _message_json(caller: Caller, args: Arguments, message: Message) -> Json:
    written = message.to_json()
    if not args.flag("include_all_metadata"):
        written.pop("metadata", None)
    answers = [m for m in caller.workspace.thread(message.channel, message.ts) if m.ts != message.ts]
    if answers:
        written |= {
            "thread_ts": message.ts,
            "reply_count": len(answers),
            "reply_users": sorted({m.user for m in answers}),
            "latest_reply": answers[-1].ts,
        }
    return written
