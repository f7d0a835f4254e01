"""The app manifest: name, optional features, HTTP, and as a URL."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from bot.errors import SettingsError
from bot.platforms.slack import manifest as module
from bot.platforms.slack.diagnostics import EVENTS, SCOPES, missing
from bot.platforms.slack.manifest import FEATURES, build_manifest, creation_url, scopes_without
from bot.settings import SLACK_FEATURES

PROJECT = Path(__file__).parents[3]


def test_without_wishes_it_is_the_one_of_the_project() -> None:
    assert build_manifest() == yaml.safe_load((PROJECT / "config" / "slack_manifest.yaml").read_text())


def test_the_settings_know_every_feature_and_each_has_scopes_and_events_of_the_app() -> None:
    assert {feature.name for feature in FEATURES} == SLACK_FEATURES
    assert {scope for feature in FEATURES for scope in feature.scopes} <= {scope.name for scope in SCOPES}
    assert {event for feature in FEATURES for event in feature.events} <= set(EVENTS)


@pytest.mark.parametrize("left_out", [{"commands"}, {"direct"}, {"agent"}, {"home"}, set(SLACK_FEATURES)])
def test_an_absent_feature_has_no_scopes_and_events_in_the_manifest(left_out: set[str]) -> None:
    manifest = build_manifest(without=left_out)
    scopes = manifest["oauth_config"]["scopes"]["bot"]
    assert missing(scopes, left_out) == ()
    assert not scopes_without(left_out) & set(scopes)
    needed = {event: scope.name for scope in SCOPES for event in scope.events}
    events = manifest["settings"]["event_subscriptions"]["bot_events"]
    assert [event for event in events if event in needed and needed[event] not in scopes] == []


def test_direct_messages_take_the_agent_view_along() -> None:
    assert "assistant:write" in scopes_without({"direct"})
    assert "agent_view" not in build_manifest(without={"direct"})["features"]


def test_the_address_has_the_whole_manifest() -> None:
    wanted = build_manifest("Ops & Größe", {"home"})
    query = parse_qs(urlsplit(creation_url(wanted)).query, strict_parsing=True)
    assert query["new_app"] == ["1"]
    assert json.loads(query["manifest_json"][0]) == wanted


def test_an_address_that_would_be_too_long_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_URL", 1_000)
    assert creation_url(build_manifest()) == ""


@pytest.mark.parametrize("name", ["x" * 36, "two\nlines", "  "])
def test_a_name_that_slack_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="Slack takes no app with the name"):
        build_manifest(name)


def test_http_needs_https() -> None:
    with pytest.raises(SettingsError, match="https"):
        build_manifest(address="http://bot.example.com")
    manifest = build_manifest(address="https://bot.example.com")
    urls = {command["url"] for command in manifest["features"]["slash_commands"]}
    assert urls == {"https://bot.example.com/slack/events"}
