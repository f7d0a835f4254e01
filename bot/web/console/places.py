"""Conversations of a user of the console: those of the workspace, and the user's own ones.

A question from the console belongs to a conversation over HTTP in the user's workspace,
`api:WORKSPACE:PRINCIPAL:THREAD`, with that workspace's servers and rules. No API token has such a channel: names of
tokens have no colon.
"""

from __future__ import annotations

import secrets
from urllib.parse import quote

from bot.domain.api_clients import EVERYWHERE_ROLE
from bot.domain.conversations import HTTP, ConversationKey, workspace_prefixes
from bot.i18n import _
from bot.rendering.text_safety import single_line
from bot.web.console.menu import CONVERSATIONS_PATH
from bot.web.console.sessions import Viewer


def key_prefixes(viewer: Viewer) -> tuple[str, ...]:
    """Return the key prefixes of the conversations of a user's workspace: on its platform, and over HTTP."""
    if EVERYWHERE_ROLE in viewer.member.roles:
        return ("",)
    return workspace_prefixes(viewer.conversation.workspace_key)


def own_key(viewer: Viewer, thread: str = "") -> ConversationKey:
    """Return the key of a conversation of the user over HTTP; a new one without a thread."""
    author, place = viewer.author, viewer.conversation
    workspace = place.workspace if place.platform == HTTP else place.workspace_key
    channel = author.id if author.platform == HTTP else author.principal
    return ConversationKey(HTTP, workspace, channel, thread or secrets.token_hex(8))


def is_own(viewer: Viewer, key: ConversationKey) -> bool:
    """Return True if the user can ask in a conversation from here."""
    return key == own_key(viewer, key.thread or "-")


def place_name(key: ConversationKey) -> str:
    """Return the place of a conversation for a reader; API tokens have channels without a colon."""
    is_console = key.platform == HTTP and ":" in key.channel
    return _("the console") if is_console else single_line(f"{key.platform} {key.channel}", 100)


def format_id(key: ConversationKey) -> str:
    """Return the id of a conversation in addresses, as the HTTP API does."""
    return str(key).replace("%", "!")


def conversation_path(key: ConversationKey) -> str:
    """Return the path of the page of a conversation, behind `/console`."""
    return f"{CONVERSATIONS_PATH}/{quote(format_id(key), safe=':!')}"
