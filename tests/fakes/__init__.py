"""Fakes of all external services, and the environment of the programs under test."""

from __future__ import annotations

from pathlib import Path

AUTHORITY = str(Path(__file__).with_name("nobody.pem"))
"""Value of SSL_CERT_FILE: the certificate of an authority whose key was deleted. Tests trust no server outside.

An HTTP client reads this one in 2 ms, and the certificates that a machine trusts in 50 ms.
"""
