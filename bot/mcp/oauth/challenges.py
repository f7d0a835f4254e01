"""Authentication challenges of servers (RFC 6750 3, RFC 9728 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import httpx2
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """Challenge of one response. `metadata` is the URL of the resource metadata, empty if missing. `scope` is the
    requested scope, None if missing. `bearer` is True if the server wants a token.
    """

    metadata: str = ""
    scope: str | None = None
    bearer: bool = False
    wider: bool = False
    """True if the token is valid but lacks scope."""

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge:
        """Return the challenge of a rejection."""
        header = response.headers.get("www-authenticate", "")
        return cls(
            extract_resource_metadata_from_www_auth(response) or "",
            extract_scope_from_www_auth(response),
            header.lower().startswith("bearer"),
            response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope",
        )
