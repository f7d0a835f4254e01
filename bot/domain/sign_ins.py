"""Signing in to an MCP server by OAuth: whose sign-in it is, what was found out and handed out, and one that is under
way.

Everything here but a key is secret or leads to something secret: it is encrypted where it is kept, and never shown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.conversations import Author, ConversationKey

SIGN_IN_SECONDS = 600.0
"""How long a person has from being given the link to coming back (mcp.md 2.8)."""
PATH = "/oauth/mcp/"
"""Below the address of the bot: what a proxy hands on for it."""
CALLBACK_PATH = f"{PATH}callback/"
"""Where people come back to; `callback_id` of the server comes behind it."""
CLIENT_PATH = f"{PATH}client/"
"""Where the bot says who it is as a client, `callback_id` and `.json` behind it: client id metadata documents."""
CALLBACK_ID = re.compile(r"[a-f0-9]{32}")
CLIENT_NAME = "Countersign"


def callback_id(server_id: str) -> str:
    """Return what stands for a server in its redirect address. Each server has one of its own, so that an answer of one
    authorization server is not taken for that of another (RFC 9700 4.4.2).
    """
    return hashlib.sha256(server_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def callback_path(server_id: str) -> str:
    """Return where people come back to from signing in to a server."""
    return f"{CALLBACK_PATH}{callback_id(server_id)}"


def client_path(server_id: str) -> str:
    """Return where the bot describes itself to the authorization server of a server."""
    return f"{CLIENT_PATH}{callback_id(server_id)}.json"


@dataclass(frozen=True, slots=True)
class SignInKey:
    """Whose sign-in to which server: `person` is a principal, or nobody for the bot's own, which everybody's calls
    use.
    """

    server_id: str
    person: str = ""


@dataclass(frozen=True, slots=True)
class Registration:
    """What an authorization server knows the bot by. It belongs to that server, its `issuer`, alone (MCP specification
    2026-07-28, basic/authorization). `method` is how the bot shows who it is at the token endpoint (RFC 8414).
    """

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    method: str = "none"
    expires_at: float | None = None
    redirect_uri: str = ""
    """Where it lets people come back to; empty if the bot has not registered itself."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """What is kept of a sign-in: where tokens come from, and those there are. `place` is a digest of where the server
    was: tokens for another place are good for nothing. Without an access token there is only the registration.
    """

    place: str
    resource: str
    registration: Registration
    endpoints: Mapping[str, Any] = field(default_factory=dict)
    """The authorization server's metadata, as far as it is needed again."""
    scope: str = ""
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float | None = None
    """Epoch seconds; None if the server has not said."""
    renew_at: float | None = None
    """From when on another token is asked for: some time before this one expires."""
    signed_in_by: str = ""
    """A principal; empty if the bot has signed itself in."""
    signed_in_at: float = 0.0
    """Epoch seconds: when somebody did; a refresh is none."""
    version: int = 0
    """Grows with every change: a refresh that comes too late must not undo another one's."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """Somebody has been given a link, and has not come back yet. `verifier` is PKCE's (RFC 7636)."""

    key: SignInKey
    by: Author
    conversation: ConversationKey
    sign_in: SignIn
    verifier: str = field(repr=False)
    redirect_uri: str = ""
    expires_at: float = 0.0
