"""Conversations by the ids that the API has for them.

A caller's own conversation, where its token stands, is called by its thread alone: `order-17`. Every other one by its
whole key, with a `!` for the `%` that would mean something else in an address: `slack:T1:C2:1700000000.000100`,
`api:slack!3AT1:ci:order-17`. The key's own text form has no `!`.
"""

from __future__ import annotations

import re
import secrets

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.conversations import HTTP, ConversationKey
from bot.domain.servers import EVERYWHERE
from bot.web.authentication import ensure_workspace
from bot.web.problems import Problem
from bot.web.servers.dependencies import WORKSPACE, WORKSPACE_FORM

_THREAD = re.compile(r"[A-Za-z0-9._~-]{1,128}")
THREAD_FORM = "an id has up to 128 letters, digits and . _ ~ -"


def place(caller: ApiClient, workspace: str, thread: str = "") -> ConversationKey:
    """Where a caller's own conversation is in a workspace, in the token's if none is named; a new one if it has no id
    yet. Raises Problem: 422 for what cannot be one, 403 for another's workspace.
    """
    if workspace and not (workspace.isascii() and re.fullmatch(WORKSPACE, workspace)):
        raise _unusable("workspace", WORKSPACE_FORM)
    if thread and not _THREAD.fullmatch(thread):
        raise _unusable("conversationId", THREAD_FORM)
    key = caller.place(workspace or EVERYWHERE, thread or secrets.token_hex(8))
    if workspace:
        ensure_workspace(caller, key.workspace_key)
    return key


def own_conversation(caller: ApiClient, workspace: str, name: str) -> ConversationKey:
    """The same for an id that may be a whole key: of one of the caller's own conversations. Raises Problem: 403 for
    one that is somebody else's, or is held on a chat platform; 422 for what nobody could have begun.
    """
    if ":" not in name:
        return place(caller, workspace, name)
    key = read_id(caller, name)
    if not is_own(caller, key) or not caller.covers_workspace(key.workspace_key):
        raise Problem(
            403, "not_yours", "Only the token that began a conversation over HTTP can ask in it.", "leave the id out"
        )
    if not _THREAD.fullmatch(key.thread):
        raise _unusable("conversationId", THREAD_FORM)
    return key


def read_id(caller: ApiClient, name: str, workspace: str = "") -> ConversationKey:
    """The conversation that an id names. Raises Problem: 404 for what cannot be one."""
    if ":" not in name and _THREAD.fullmatch(name):
        return place(caller, workspace, name)
    try:
        key = ConversationKey.parse(name.replace("!", "%"))
        if str(key).replace("%", "!") == name:
            return key
    except ValueError:
        pass
    raise no_such_conversation()


def id_of(caller: ApiClient, key: ConversationKey) -> str:
    """What a conversation is called towards this caller."""
    if key == caller.place(EVERYWHERE, key.thread) and _THREAD.fullmatch(key.thread):
        return key.thread
    return str(key).replace("%", "!")


def is_own(caller: ApiClient, key: ConversationKey) -> bool:
    """Whether the caller holds this conversation itself."""
    return key.platform == HTTP and key.channel == caller.name


def may_see(caller: ApiClient, key: ConversationKey) -> bool:
    """Whether a conversation is this caller's to read: its own, an admin's any of their workspace."""
    return caller.covers_workspace(key.workspace_key) and (is_own(caller, key) or caller.may(ApiRole.ADMIN))


def no_such_conversation() -> Problem:
    """Also where there is one, for somebody else."""
    return Problem(404, "not_found", "There is no such conversation.", "GET /api/conversations lists them")


def _unusable(name: str, form: str) -> Problem:
    said = f"{form[:1].upper()}{form[1:]}."
    return Problem(422, "invalid", "Some fields cannot be used.", "correct the fields that are named", {name: said})
