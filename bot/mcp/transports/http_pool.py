"""Connections to HTTP servers, kept open between requests. Used below the HTTP client, guarded or not."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

import httpx2

KEPT_SECONDS = 1.5
"""How long a connection that nobody uses stays open. Servers close theirs after two seconds (gunicorn) or five
(uvicorn, Node): a request that is on its way then has an outcome that nobody knows.
"""
_LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=KEPT_SECONDS)


def pool() -> httpx2.AsyncHTTPTransport:
    """A pool of connections, for one server."""
    return httpx2.AsyncHTTPTransport(
        verify=_trust(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")), limits=_LIMITS
    )


@lru_cache(maxsize=4)
def _trust(_file: str, _folder: str) -> ssl.SSLContext:
    """The authorities that are trusted, read once for all servers: that takes 40 ms and most of a megabyte."""
    return httpx2.create_ssl_context()
