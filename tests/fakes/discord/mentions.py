"""Mentions in a message, and the users whom it notifies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.fakes.discord.messages import Message
from tests.fakes.discord.people import User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.refusals import Json, invalid

USER = re.compile(r"<@!?(\d+)>")
ROLE = re.compile(r"<@&(\d+)>")
ALL = re.compile(r"@(everyone|here)\b")
CODE = re.compile(r"\\[\\`]|```.*?```|``.+?``|`[^`\n]*`", re.DOTALL)
KINDS = ("roles", "users", "everyone")


@dataclass(frozen=True)
class Allowed:
    """Mentions in a text that may notify. `parse`: kinds of which every one may; `users`, `roles`: these ids beside."""

    parse: frozenset[str]
    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    replied: bool = True

    def user(self, user: str) -> bool:
        """May this user be notified?"""
        return "users" in self.parse or user in self.users

    def role(self, role: str) -> bool:
        """May this role be notified?"""
        return "roles" in self.parse or role in self.roles


UNSAID = Allowed(frozenset(KINDS))
"""Default of an ordinary message without `allowed_mentions`: all mentions notify."""
UNSAID_IN_ANSWERS = Allowed(frozenset({"users"}))
"""An answer to an interaction without `allowed_mentions`."""


def parse_allowed_mentions(given: Json | None, unsaid: Allowed) -> Allowed:
    """Parse a body's `allowed_mentions`.

    Raises:
        Refused: 50035, as when 'users' is parsed and users are listed as well.
    """
    if given is None:
        return unsaid
    parse, lists = given.get("parse", []), {kind: given.get(kind, []) for kind in ("users", "roles")}
    unknown = given.keys() - {"parse", "users", "roles", "replied_user"}
    if unknown or not set(parse) <= set(KINDS):
        raise invalid("allowed_mentions.parse", "BASE_TYPE_CHOICES", f"Value must be one of {KINDS}.")
    for kind, ids in lists.items():
        if kind in parse and ids:
            message = f"parse:[{kind!r}] and {kind}: [ids...] are mutually exclusive."
            raise invalid("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", message)
        if len(ids) > 100:
            raise invalid(f"allowed_mentions.{kind}", "BASE_TYPE_MAX_LENGTH", "Must be 100 or fewer in length.")
    return Allowed(
        frozenset(parse),
        frozenset(map(str, lists["users"])),
        frozenset(map(str, lists["roles"])),
        bool(given.get("replied_user", False)),
    )


@dataclass
class Mentioned:
    """Mentions in the texts of a message; those in code do not count."""

    users: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    all: list[str] = field(default_factory=list)

    @classmethod
    def by(cls, message: Message) -> Mentioned:
        """Return the mentions in the content and the text displays of a message."""
        text = CODE.sub(" ", "\n".join([message.content, *_displays(message.components)]))
        return cls(*(list(dict.fromkeys(pattern.findall(text))) for pattern in (USER, ROLE, ALL)))


def settle(message: Message, users: dict[str, User], may: Allowed, now: float, *, ping: bool = True) -> None:
    """Set the mentions and notified users of a message. `ping` tells if a reply notifies the author replied to."""
    mentioned, guild, author = Mentioned.by(message), message.channel.guild, message.author
    found = [users[user] for user in mentioned.users if user in users]
    message.mentions = [user for user in found if may.user(user.id)]
    replied = message.reply_to.author if message.reply_to is not None else None
    if replied is not None and ping and may.replied and replied not in message.mentions and not replied.webhook:
        message.mentions.append(replied)
    notified = {
        user.id for user in message.mentions if message.channel.permissions(user, now) & Permission.VIEW_CHANNEL
    }
    message.mentioned_roles, message.mentions_everyone = [], False
    if guild is not None:
        everywhere = bool(message.channel.permissions(author, now) & Permission.MENTION_EVERYONE)
        roles = [guild.roles[role] for role in mentioned.roles if role in guild.roles and may.role(role)]
        message.mentioned_roles = roles
        notified |= {role.id for role in roles if role.mentionable or everywhere}
        if mentioned.all and everywhere and "everyone" in may.parse:
            message.mentions_everyone = True
            notified |= set(mentioned.all)
    message.pings |= notified - {author.id}


def _displays(components: Iterable[Json]) -> Iterator[str]:
    for component in components:
        if component["type"] == 10:
            yield component["content"]
        yield from _displays(component.get("components", []))
