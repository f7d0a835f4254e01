"""Sign-in to an MCP server by OAuth: its key, registration, tokens and pending state.

All values but the key are secret or lead to secrets. They are stored encrypted and never shown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.conversations import Author, ConversationKey

SIGN_IN_SECONDS = 600.0
"""Seconds from creating the link to the user's return."""
PATH = "/oauth/mcp/"
"""Path prefix, below the bot's address, that a proxy forwards to the bot."""
CALLBACK_PATH = f"{PATH}callback/"
"""Path of the OAuth redirect; the server's `callback_id` follows."""
CLIENT_PATH = f"{PATH}client/"
"""Path of the client id metadata document; `callback_id` and `.json` follow."""
CALLBACK_ID = re.compile(r"[a-f0-9]{32}")
CLIENT_NAME = "Countersign"


def callback_id(server_id: str) -> str:
    """Return the id of a server in its redirect address. Ids differ by server, so that a response of one authorization
    server is not taken for that of another (RFC 9700 4.4.2).
    """
    return hashlib.sha256(server_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def callback_path(server_id: str) -> str:
    """Return the path of a server's OAuth redirect."""
    return f"{CALLBACK_PATH}{callback_id(server_id)}"


def client_path(server_id: str) -> str:
    """Return the path of the client id metadata document for a server."""
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
    """Stored part of the authorization server's metadata."""
    scope: str = ""
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float | None = None
    """Epoch seconds; None if the server does not say."""
    renew_at: float | None = None
    """Epoch seconds from which the token is refreshed, some time before its expiry; None without a known expiry."""
    signed_in_by: str = ""
    """Principal of the user; empty if the bot has signed itself in."""
    signed_in_at: float = 0.0
    """Epoch seconds of the sign-in. A refresh does not change it."""
    version: int = 0
    """Version, which grows with every change, so that a late refresh does not overwrite a newer one."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """Sign-in with a link in use: its user has not returned. `verifier` is PKCE's (RFC 7636)."""

    key: SignInKey
    by: Author
    conversation: ConversationKey
    sign_in: SignIn
    verifier: str = field(repr=False)
    redirect_uri: str = ""
    on_page: bool = False
    """True if the link is on a page of the console."""
    expires_at: float = 0.0
