"""What the bot may do on a server, and what for.

Read by `countersign doctor`, which names what is missing, and by the guide, whose invitation asks for exactly these. It
is data only; bits as in docs.discord.com, "Permissions".
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

SCOPES = ("bot", "applications.commands")
AUTHORIZE = "https://discord.com/oauth2/authorize"
ADMINISTRATOR = 1 << 3


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission: its bit, its name as Discord's clients show it, and what is missing without it, in words that
    finish "without it …". Without a `needed` one the bot cannot answer; the others have a way around.
    """

    bit: int
    name: str
    without: str
    needed: bool = False

    @property
    def value(self) -> int:
        """The permission as a number."""
        return 1 << self.bit


PERMISSIONS = (
    Permission(10, "View Channels", "the bot sees no channel", needed=True),
    Permission(11, "Send Messages", "the bot cannot answer", needed=True),
    Permission(38, "Send Messages in Threads", "the bot cannot answer in threads", needed=True),
    Permission(35, "Create Public Threads", "the bot answers in the channel itself instead of opening a thread"),
    Permission(16, "Read Message History", "the bot does not see what was said before, and cannot reply to a message"),
    Permission(15, "Attach Files", "long answers, and images and files from tools, are not shown"),
    Permission(14, "Embed Links", "some clients show its links as plain text"),
)


def permission_integer() -> int:
    """Everything the bot uses, as the number that an invitation asks for."""
    return sum(each.value for each in PERMISSIONS)


def missing(granted: int) -> tuple[Permission, ...]:
    """What is lacking in a set of permissions."""
    return () if granted & ADMINISTRATOR else tuple(each for each in PERMISSIONS if not granted & each.value)


def invite_link(app: str) -> str:
    """Where an administrator of a server lets the bot in. `app` is the application's id."""
    query = {"client_id": app, "scope": " ".join(SCOPES), "permissions": str(permission_integer())}
    return f"{AUTHORIZE}?{urlencode(query)}"
