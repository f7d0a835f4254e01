"""Fakes of all external services, and the environment of the programs under test."""

from __future__ import annotations

from pathlib import Path

AUTHORITY = str(Path(__file__).with_name("nobody.pem"))
"""For SSL_CERT_FILE: the certificate of an authority whose key is gone. No test trusts anybody outside, and to read
this one costs an HTTP client 2 ms, where those that a machine trusts cost 50.
"""
