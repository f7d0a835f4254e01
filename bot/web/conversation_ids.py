"""Conversation ids of the API, and the conversations that a token covers.

A client's own conversation in its token's workspace has its thread as the id: `order-17`. Every other one has its whole
key, with `!` for `%`, which would need escaping in an address: `slack:T1:C2:1700000000.000100`,
`api:slack!3AT1:ci:order-17`. Keys contain no `!`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.conversations import HTTP, ConversationKey, workspace_prefixes
from bot.domain.servers import EVERYWHERE
from bot.i18n import _, gettext_lazy
from bot.web.authentication import ensure_workspace
from bot.web.problems import Problem, invalid_fields
from bot.web.server_scope import WORKSPACE, WORKSPACE_FORM


def key_prefixes(caller: ApiClient) -> Sequence[str]:
    """Return the key prefixes of the client's workspace: on its platform, and over HTTP."""
    return ("",) if caller.workspace == EVERYWHERE else workspace_prefixes(caller.workspace)


_THREAD = re.compile(r"[A-Za-z0-9._~-]{1,128}")
THREAD_FORM = gettext_lazy("An id has up to 128 letters, digits and . _ ~ -.")


def own_key(caller: ApiClient, workspace: str, thread: str = "") -> ConversationKey:
    """Return the key of a client's own conversation in a workspace, by default the token's; a new thread without an id.
    Raises Problem: 422 for an invalid id, 403 for a workspace that the token does not cover.
    """
    if workspace and not (workspace.isascii() and re.fullmatch(WORKSPACE, workspace)):
        raise invalid_fields({"workspace": WORKSPACE_FORM})
    if thread and not _THREAD.fullmatch(thread):
        raise invalid_fields({"conversationId": THREAD_FORM})
    key = caller.place(workspace or EVERYWHERE, thread or secrets.token_hex(8))
    if workspace:
        ensure_workspace(caller, key.workspace_key)
    return key


def own_conversation(caller: ApiClient, workspace: str, name: str) -> ConversationKey:
    """Return the key of a client's own conversation from an id or a whole key. Raises Problem: 403 for another client's
    or a chat platform's conversation; 422 for an invalid id.
    """
    if ":" not in name:
        return own_key(caller, workspace, name)
    key = parse_id(caller, name)
    if not is_own(caller, key) or not caller.covers_workspace(key.workspace_key):
        raise Problem(
            403,
            "not_yours",
            _("Only the token that began a conversation over HTTP can ask in it."),
            _("leave the id out"),
        )
    if not _THREAD.fullmatch(key.thread):
        raise invalid_fields({"conversationId": THREAD_FORM})
    return key


def parse_id(caller: ApiClient, name: str, workspace: str = "") -> ConversationKey:
    """Return the conversation key of an id. Raises Problem: 404 for an invalid id."""
    if ":" not in name and _THREAD.fullmatch(name):
        return own_key(caller, workspace, name)
    try:
        key = ConversationKey.parse(name.replace("!", "%"))
        if str(key).replace("%", "!") == name:
            return key
    except ValueError:
        pass
    raise no_such_conversation()


def format_id(caller: ApiClient, key: ConversationKey) -> str:
    """Return the id of a conversation for this client."""
    if key == caller.place(EVERYWHERE, key.thread) and _THREAD.fullmatch(key.thread):
        return key.thread
    return str(key).replace("%", "!")


def is_own(caller: ApiClient, key: ConversationKey) -> bool:
    """Return True if this client started the conversation."""
    return key.platform == HTTP and key.channel == caller.name


def may_see(caller: ApiClient, key: ConversationKey) -> bool:
    """Return True if the client may read the conversation: its own, or with an admin's token any of its workspace."""
    return caller.covers_workspace(key.workspace_key) and (is_own(caller, key) or caller.may(ApiRole.ADMIN))


def no_such_conversation() -> Problem:
    """Answer 404 for missing and for foreign conversations alike, so that ids cannot be probed."""
    return Problem(404, "not_found", _("There is no such conversation."), _("GET /api/conversations lists them"))
