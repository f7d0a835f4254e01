"""The app's manifest as the fake workspace reads it: scopes of the token, events, commands and shortcuts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

MANIFEST = Path(__file__).parents[3] / "config" / "slack_manifest.yaml"


@dataclass(frozen=True)
class Manifest:
    """Settings that an app was installed with."""

    scopes: frozenset[str]
    events: frozenset[str]
    commands: frozenset[str]
    shortcuts: frozenset[str]
    agent: bool


@dataclass(frozen=True)
class Lists:
    """The parts of a manifest that this needs, found by their keys; the rest of YAML is not read."""

    text: str = field(repr=False)

    def under(self, key: str) -> frozenset[str]:
        """Return the items of the list under a key."""
        match = re.search(rf"^ *{key}:\n((?: *- [\w:.]+ *\n)+)", self.text, re.MULTILINE)
        return frozenset(re.findall(r"- (\S+)", match.group(1)) if match else [])

    def every(self, key: str) -> frozenset[str]:
        """Return the values of a key at all levels."""
        return frozenset(re.findall(rf"^[ -]*{key}: *(\S+) *$", self.text, re.MULTILINE))


def shipped_manifest() -> Manifest:
    """Return the manifest the product ships."""
    lists = Lists(MANIFEST.read_text(encoding="utf-8"))
    return Manifest(
        scopes=lists.under("bot"),
        events=lists.under("bot_events"),
        commands=lists.every("command"),
        shortcuts=lists.every("callback_id"),
        agent="agent_view:" in lists.text,
    )
