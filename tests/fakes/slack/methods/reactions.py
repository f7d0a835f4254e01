"""reactions.add and reactions.remove."""

from __future__ import annotations

import re

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.methods.chat import existing_place
from tests.fakes.slack.methods.table import method
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.state import Caller

EMOJI = re.compile(r"[a-z0-9_'+-]+(::skin-tone-[2-6])?")


@method("reactions.add", "tier3", ("channel", "name", "timestamp"), "reactions:write")
def add(caller: Caller, args: Arguments) -> Json:
    """Put an emoji on a message."""
    message, name = _target(caller, args)
    users = message.reactions.setdefault(name, [])
    if caller.bot.bot.id in users:
        raise Refused("already_reacted")
    users.append(caller.bot.bot.id)
    return {}


@method("reactions.remove", "tier2", ("channel", "name", "timestamp"), "reactions:write")
def remove(caller: Caller, args: Arguments) -> Json:
    """Take one's emoji off again."""
    message, name = _target(caller, args)
    users = message.reactions.get(name, [])
    if caller.bot.bot.id not in users:
        raise Refused("no_reaction")
    users.remove(caller.bot.bot.id)
    if not users:
        del message.reactions[name]
    return {}


def _target(caller: Caller, args: Arguments) -> tuple[Message, str]:
    channel, name = existing_place(caller, args), args.required_text("name")
    if not EMOJI.fullmatch(name):
        raise Refused("invalid_name")
    if caller.bot.bot.id not in channel.members:
        raise Refused("not_in_channel")
    return caller.workspace.message(channel.id, args.required_text("timestamp")), name
