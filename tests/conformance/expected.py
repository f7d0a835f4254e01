"""Scenarios of the conformance suite that fail, and why. One that is here and passes fails the run, so that it goes."""

from __future__ import annotations

_NO_OAUTH = "signing in to a server with OAuth is not there yet"
_NO_QUESTIONS = "questions that a server asks back are not passed on to people yet"

_SIGNING_IN = (
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
)
_SIGNING_IN_SINCE_2026 = (
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
)

EXPECTED: dict[str, dict[str, str]] = {
    "2025-11-25": {
        **dict.fromkeys(_SIGNING_IN, _NO_OAUTH),
        "elicitation-sep1034-client-defaults": _NO_QUESTIONS,
    },
    "2026-07-28": {
        **dict.fromkeys(_SIGNING_IN + _SIGNING_IN_SINCE_2026, _NO_OAUTH),
        "sep-2322-client-request-state": _NO_QUESTIONS,
    },
}
"""By revision of the specification and name of the scenario."""
