"""Sign-in of users by OpenID Connect: one under way in a browser, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

CALLBACK_PATH = "/oidc/callback"
"""Path behind that of the console to which the issuer sends browsers back."""


@dataclass(frozen=True, slots=True)
class OpenIdRequest:
    """A sign-in under way. `verifier` is PKCE's (RFC 7636)."""

    redirect_uri: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """User of an issuer. `email` is one that the issuer has verified; empty for none. `slack_team` and `slack_user` are
    ids of Slack, if Slack is the issuer.
    """

    subject: str
    name: str = ""
    email: str = field(default="", repr=False)
    slack_team: str = ""
    slack_user: str = ""
