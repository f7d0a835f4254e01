"""Comparison of URLs by origin and by registrable domain (public suffix list).

The list comes with the library; nothing is fetched.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp.shared.auth import OAuthMetadata

from bot.errors import ServerTrouble
from bot.mcp.addresses import parse_ip

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_PORTS = {"http": 80, "https": 443}


def check_party(metadata: OAuthMetadata, *, registered_by_hand: bool) -> None:
    """Check that the endpoints of an authorization server belong to its issuer, so that metadata cannot redirect a
    sign-in. A client that an admin registered by hand may use back-channel endpoints of another domain, because
    some services need that. Raises ServerTrouble.
    """
    endpoints: list[tuple[str, object]] = [("authorization endpoint", metadata.authorization_endpoint)]
    if not registered_by_hand:
        endpoints += [
            ("token endpoint", metadata.token_endpoint),
            ("registration endpoint", metadata.registration_endpoint),
            ("revocation endpoint", metadata.revocation_endpoint),
        ]
    for what, endpoint in endpoints:
        if endpoint is not None and not is_one_party(str(metadata.issuer), str(endpoint)):
            elsewhere = urlsplit(str(endpoint)).hostname
            raise ServerTrouble(
                f"The authorization server {metadata.issuer} has its {what} at {elsewhere}, which is not its own "
                "domain, so the sign-in could reach another party.",
                "its operator has to serve both from one domain"
                if what == "authorization endpoint"
                else "if you know that both belong together, register the bot there by hand and set the server's "
                "client_id",
            )


def is_one_party(url: str, other: str) -> bool:
    """Return True if both addresses have one origin or one registrable domain. IP addresses and names without a domain,
    such as `localhost`, have none.
    """
    if _origin(url) == _origin(other):
        return True
    domain = _registrable_domain(url)
    return bool(domain) and domain == _registrable_domain(other)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _registrable_domain(url: str) -> str:
    host = (urlsplit(url).hostname or "").rstrip(".")
    return "" if parse_ip(host) is not None else _suffixes().privatesuffix(host) or ""


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - reads its list, which takes a moment

    return PublicSuffixList()
