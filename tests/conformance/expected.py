"""Scenarios of the conformance suite that fail, and why. One that is here and passes fails the run, so that it goes."""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {"2025-11-25": {}, "2026-07-28": {}}
"""By revision of the specification and name of the scenario."""
