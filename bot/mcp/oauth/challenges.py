"""What a server says when it refuses a request for want of a token (RFC 6750 3, RFC 9728 5.1)."""

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
    """`metadata` is where the server says who signs people in to it; empty if it has not said so. `scope` is what it
    wants, None if it has not said. `bearer`: it wants a token.
    """

    metadata: str = ""
    scope: str | None = None
    bearer: bool = False
    wider: bool = False
    """The token is good, and not for this."""

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge:
        """That of a refusal."""
        header = response.headers.get("www-authenticate", "")
        return cls(
            extract_resource_metadata_from_www_auth(response) or "",
            extract_scope_from_www_auth(response),
            header.lower().startswith("bearer"),
            response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope",
        )
