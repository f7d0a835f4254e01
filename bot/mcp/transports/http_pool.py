"""Pool of HTTP connections to one server."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

import httpx2

KEPT_SECONDS = 1.5
"""Seconds until an unused connection is closed. Servers close theirs after two (gunicorn) or five seconds (uvicorn,
Node); a request sent at that moment would have an unknown outcome.
"""
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=KEPT_SECONDS)


def pool() -> httpx2.AsyncHTTPTransport:
    """Return a new pool for one server."""
    return httpx2.AsyncHTTPTransport(
        verify=_trust(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")), limits=_LIMITS
    )


@lru_cache(maxsize=4)
def _trust(_file: str, _folder: str) -> ssl.SSLContext:
    """Return the TLS context, loaded once for all servers because that takes 40 ms and most of a megabyte."""
    return httpx2.create_ssl_context()
