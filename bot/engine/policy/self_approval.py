"""Self-approval: the calls that their asker may approve (ADR 39).

Every condition has to hold; an unknown fact needs an approver:

1. No rule names approvers, their number or another place for the card; no profile names approvers; the operator's file
   does not switch it off (`bot.engine.policy.rules`).
2. A full member has asked: no API client, guest or external user.
3. The tool deletes nothing: it is read-only, or says that it is not destructive. Hints count as for AUTO, for trusted
   servers with a pinned definition.
4. The arguments name no other person and no other place than the asker's conversation.
5. The call needs no approval because of words that the model has read (`bot.engine.policy.information_flow`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from bot.domain.approvals import SelfApproval
from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.tools import Tool, ToolKind

_NAMES = re.compile(
    r"""
      <(?P<mention>[@#!][^<>\s]*)>                         # <@U1>, <@!7>, <@&7>, <#C1|ops>, <!subteam^S1>, <!here>
    | (?P<handle>@\w[\w.-]*)                             # @ben, the end of ben@example.com
    | (?<![\w-])(?P<slack>[UWSCGD](?=[A-Z]*[0-9])[A-Z0-9]{7,})(?![\w-])
    | (?<![\w-])(?P<discord>[0-9]{17,20})(?![\w-])
    """,
    re.VERBOSE,
)
"""Names of a user, a group or a channel, on any platform."""


def self_approval(
    tool: Tool,
    arguments: Mapping[str, Any],
    asker: Author,
    conversation: ConversationKey,
    reviewed: Callable[[Tool], bool],
) -> SelfApproval:
    """Return ALLOWED if this call is one that its asker may approve, otherwise the first reason against it."""
    if asker.platform == HTTP:
        return SelfApproval.PROGRAM
    if tool.may_delete:
        return SelfApproval.DESTRUCTIVE
    if tool.kind is ToolKind.CALL and not tool.trusted:
        return SelfApproval.UNTRUSTED
    if tool.kind is ToolKind.CALL and not reviewed(tool):
        return SelfApproval.UNREVIEWED
    if names_others(tool, arguments, asker, conversation):
        return SelfApproval.OTHERS
    return SelfApproval.ALLOWED


def membership_reason(member: Member) -> SelfApproval:
    """Return OUTSIDER for a guest or an external user, otherwise ALLOWED."""
    return SelfApproval.OUTSIDER if member.guest or member.external else SelfApproval.ALLOWED


def names_others(tool: Tool, arguments: Mapping[str, Any], asker: Author, conversation: ConversationKey) -> bool:
    """Return True if the arguments name a person other than the asker, or a place other than the conversation.

    An argument that the operator lists in `tool_recipients` names another person with any value. Elsewhere ids,
    mentions, `@names` and mail addresses do; a bare name cannot be told from a word. Arguments that are left out have
    their defaults.
    """
    own = _own_names(asker, conversation)
    arguments = {**_defaults(tool), **arguments}
    recipients = (text for name in tool.flow.recipients for text in leaf_texts(arguments.get(name)))
    named = (name for text in leaf_texts(arguments) for name in _named(text))
    return any(name.strip() not in own for name in (*recipients, *named))


def _defaults(tool: Tool) -> Mapping[str, Any]:
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {
        name: schema["default"] for name, schema in known.items() if isinstance(schema, Mapping) and "default" in schema
    }


def _named(text: str) -> Iterator[str]:
    """Yield the users, groups and channels that a text or a quoted URL names; of a mention what stands before its
    label.
    """
    for match in _NAMES.finditer(f"{text}\n{unquote(text)}" if "%" in text else text):
        yield match[0] if match["mention"] is None else match["mention"].partition("|")[0]


def _own_names(asker: Author, conversation: ConversationKey) -> Sequence[str]:
    """Return the ways in which arguments may name the asker and their conversation. Users choose their display names,
    so these do not count.
    """
    user = (asker.id, asker.principal, f"@{asker.id}", f"@!{asker.id}", f"<@{asker.id}>")
    places = (conversation.channel, conversation.thread)
    return (*user, *(name for place in places for name in (place, f"#{place}", f"<#{place}>")))


def leaf_texts(value: object) -> list[str]:
    """Return the texts and numbers in an argument, with the keys of objects."""
    match value:
        case None | "":
            return []
        case Mapping():
            return [leaf for pair in value.items() for item in pair for leaf in leaf_texts(item)]
        case list() | tuple():
            return [leaf for item in value for leaf in leaf_texts(item)]
        case _:
            return [str(value)]
