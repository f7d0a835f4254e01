"""The manifest requests exactly the scopes and events that the code uses."""

from __future__ import annotations

import re
from pathlib import Path

from bot.platforms.slack import diagnostics
from bot.platforms.slack.diagnostics import EVENTS, OPTIONAL_SCOPES, SCOPES, WITHOUT_SCOPE

PROJECT = Path(__file__).parents[3]
MANIFEST = (PROJECT / "config" / "slack_manifest.yaml").read_text(encoding="utf-8")
_END_OF_TABLE = '"""Every event that is subscribed to."""'
CODE = "\n".join(
    # Without the table, because it names every method.
    text.partition(_END_OF_TABLE)[2] if path.name == Path(diagnostics.__file__).name else text
    for path in sorted((PROJECT / "bot" / "platforms" / "slack").glob("*.py"))
    for text in (path.read_text(encoding="utf-8"),)
)
_METHOD = re.compile(
    r'"((?:agents|apps|assistant|auth|bookmarks|bots|chat|conversations|emoji|files|pins|reactions|team|usergroups|users'
    r'|views)\.(?:[a-z]+\.)*[a-z]+[A-Za-z]*)"'
)


def manifest_list(key: str) -> list[str]:
    """Return the list under a key of the manifest."""
    (items,) = re.findall(rf"^ *{key}:\n((?: *- [\w:.]+\n)+)", MANIFEST, re.MULTILINE)
    return re.findall(r"- (\S+)", items)


def test_the_manifest_has_exactly_what_the_tables_have() -> None:
    assert manifest_list("bot") == [scope.name for scope in SCOPES]
    assert manifest_list("bot_events") == list(EVENTS)
    commands = ["mcp", "profile", "agents", "ask", "conversations", "usage", "preferences", "approvals", "console"]
    assert re.findall(r"command: /(\w+)", MANIFEST) == commands


def test_every_method_that_is_called_is_covered_by_a_scope_and_every_scope_covers_something() -> None:
    called = set(_METHOD.findall(CODE)) - {"files.slack.com"}
    covered = {method for scope in SCOPES for method in scope.methods}
    assert called - covered - WITHOUT_SCOPE == set(OPTIONAL_SCOPES)
    assert covered - called == set()
    assert all(scope.methods or scope.events for scope in SCOPES if scope.name != "commands")


def test_every_event_that_is_subscribed_to_is_understood() -> None:
    kinds = {event.partition(".")[0] for event in EVENTS}
    assert {kind for kind in kinds if f'"{kind}"' not in CODE} == set()


def test_the_manifest_is_no_larger_than_slack_takes() -> None:
    def values(key: str) -> list[str]:
        return re.findall(rf"^ *(?:- )?{key}: (.+)$", MANIFEST, re.MULTILINE)

    limits = {"name": 35, "display_name": 80, "description": 140, "agent_description": 300, "usage_hint": 1_000}
    for key, most in limits.items():
        found = values(key)
        assert found, key
        assert max(map(len, found)) <= most, key
    assert len(values("command")) <= 25  # the strictest documented limit
    assert len(values("callback_id")) <= 10
