"""Permissions of a member in a channel, computed from roles and overwrites as Discord does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag


class Permission(IntFlag):
    """Supported permissions."""

    KICK_MEMBERS = 1 << 1
    BAN_MEMBERS = 1 << 2
    ADMINISTRATOR = 1 << 3
    MANAGE_CHANNELS = 1 << 4
    MANAGE_GUILD = 1 << 5
    ADD_REACTIONS = 1 << 6
    VIEW_CHANNEL = 1 << 10
    SEND_MESSAGES = 1 << 11
    SEND_TTS_MESSAGES = 1 << 12
    MANAGE_MESSAGES = 1 << 13
    EMBED_LINKS = 1 << 14
    ATTACH_FILES = 1 << 15
    READ_MESSAGE_HISTORY = 1 << 16
    MENTION_EVERYONE = 1 << 17
    USE_EXTERNAL_EMOJIS = 1 << 18
    MANAGE_ROLES = 1 << 28
    MANAGE_WEBHOOKS = 1 << 29
    USE_APPLICATION_COMMANDS = 1 << 31
    MANAGE_THREADS = 1 << 34
    CREATE_PUBLIC_THREADS = 1 << 35
    CREATE_PRIVATE_THREADS = 1 << 36
    SEND_MESSAGES_IN_THREADS = 1 << 38
    MODERATE_MEMBERS = 1 << 40


P = Permission
NOTHING = P(0)
EVERYTHING = ~NOTHING
FOR_EVERYONE = (
    P.ADD_REACTIONS
    | P.VIEW_CHANNEL
    | P.SEND_MESSAGES
    | P.EMBED_LINKS
    | P.ATTACH_FILES
    | P.READ_MESSAGE_HISTORY
    | P.MENTION_EVERYONE
    | P.USE_EXTERNAL_EMOJIS
    | P.USE_APPLICATION_COMMANDS
    | P.CREATE_PUBLIC_THREADS
    | P.CREATE_PRIVATE_THREADS
    | P.SEND_MESSAGES_IN_THREADS
)
"""Permissions of @everyone in a new server, mentioning everyone included."""
IN_A_DM = FOR_EVERYONE & ~(P.CREATE_PUBLIC_THREADS | P.CREATE_PRIVATE_THREADS)
WHILE_TIMED_OUT = P.VIEW_CHANNEL | P.READ_MESSAGE_HISTORY


@dataclass
class Overwrite:
    """Permissions that a channel allows and denies to one role or member, by its id."""

    target: str
    is_role: bool
    allow: Permission = P(0)
    deny: Permission = P(0)

    def to_json(self) -> dict[str, object]:
        """Return one of a channel's `permission_overwrites`."""
        kind = 0 if self.is_role else 1
        return {"id": self.target, "type": kind, "allow": str(int(self.allow)), "deny": str(int(self.deny))}


def apply_overwrites(
    base: Permission, overwrites: Iterable[Overwrite], everyone: str, roles: Iterable[str], user: str
) -> Permission:
    """Return the base with a channel's overwrites: first those of @everyone, then of roles, then of the member."""
    if base & P.ADMINISTRATOR:
        return EVERYTHING
    by_target = {overwrite.target: overwrite for overwrite in overwrites}
    permissions = base
    if everyone in by_target:
        permissions = permissions & ~by_target[everyone].deny | by_target[everyone].allow
    allow = deny = P(0)
    for role in roles:
        if role in by_target and role != everyone:
            allow, deny = allow | by_target[role].allow, deny | by_target[role].deny
    permissions = permissions & ~deny | allow
    if user in by_target:
        permissions = permissions & ~by_target[user].deny | by_target[user].allow
    return permissions if permissions & P.VIEW_CHANNEL else P(0)
