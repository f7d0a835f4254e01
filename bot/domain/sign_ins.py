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
"""Seconds between handing out the link and the return of the user."""
PATH = "/oauth/mcp/"
"""Below the address of the bot: what a proxy hands on for it."""
CALLBACK_PATH = f"{PATH}callback/"
"""Path of the OAuth redirect; the server's `callback_id` follows."""
CLIENT_PATH = f"{PATH}client/"
"""Path of the client id metadata document; `callback_id` and `.json` follow."""
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
    """User and server of a sign-in. `person` is a principal; empty for the bot's own sign-in, shared by all calls."""

    server_id: str
    person: str = ""


@dataclass(frozen=True, slots=True)
class Registration:
    """Client registration at one authorization server, its `issuer` (MCP specification 2026-07-28,
    basic/authorization). `method` is the client authentication at the token endpoint (RFC 8414).
    """

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    method: str = "none"
    expires_at: float | None = None
    redirect_uri: str = ""
    """Redirect URI of the registration; empty if the bot has not registered itself."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """Stored sign-in: the token source and its tokens. `place` is a digest of the server's address: tokens for
    another address are invalid. Without an access token there is only the registration.
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
    """Sign-in whose link was handed out and whose user has not returned. `verifier` is PKCE's (RFC 7636)."""

    key: SignInKey
    by: Author
    conversation: ConversationKey
    sign_in: SignIn
    verifier: str = field(repr=False)
    redirect_uri: str = ""
    expires_at: float = 0.0
