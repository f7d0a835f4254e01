"""The manifest of the Slack app: config/slack_manifest.yaml with a name, chosen features, and a transport.

A feature that is left out takes its scopes and events with it, so that the app asks for no right without a use.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import yaml  # type: ignore[import-untyped]

from bot.errors import SettingsError
from bot.folders import DEFAULTS

CREATE_URL = "https://api.slack.com/apps"
LONGEST_URL = 8_000
"""Characters of an address that all browsers and proxies accept."""
LONGEST_NAME = 35
"""Characters of an app's name, as Slack counts them."""
_FILE = DEFAULTS / "slack_manifest.yaml"


@dataclass(frozen=True, slots=True)
class Feature:
    """A part of the app that may be left out: its name in SLACK_WITHOUT, a description, its scopes and its events."""

    name: str
    description: str
    scopes: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


FEATURES = (
    Feature("commands", "slash commands (/mcp, /ask …) and the message shortcut", ("commands",)),
    Feature(
        "direct",
        "direct and group messages",
        ("im:history", "im:read", "mpim:history", "mpim:read"),
        ("message.im", "message.mpim"),
    ),
    Feature(
        "agent",
        "the agent view: titles, suggestions and Slack's Stop button in threads",
        ("assistant:write",),
        ("agent_session_stopped", "agent_session_title_changed", "app_context_changed"),
    ),
    Feature("home", "the Home tab: what waits for you, your questions, the servers", (), ("app_home_opened",)),
)
"""Features in the order of their questions."""


def scopes_without(features: Collection[str]) -> frozenset[str]:
    """Return the scopes that an app without these features does not have."""
    return frozenset(scope for feature in _left_out(features) for scope in feature.scopes)


def build_manifest(name: str = "", without: Collection[str] = (), address: str = "") -> dict[str, Any]:
    """Return the manifest with this name, without these features, for HTTP at a public address or for Socket Mode.
    Raises SettingsError for a name that Slack does not accept.
    """
    manifest: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    if name:
        if len(name) > LONGEST_NAME or not name.isprintable() or not name.strip():
            fix = f"write at most {LONGEST_NAME} characters, such as Ops"
            raise SettingsError(f"Slack takes no app with the name {name[:60]!r}.", fix)
        manifest["display_information"]["name"] = name
        manifest["features"]["bot_user"]["display_name"] = name
    _leave_out(manifest, {feature.name for feature in _left_out(without)})
    if address:  # Slack posts there instead of to a socket
        if urlsplit(address).scheme != "https":
            raise SettingsError("Slack calls https addresses only.", "name the bot's public https address")
        url, settings = f"{address.rstrip('/')}/slack/events", manifest["settings"]
        settings["socket_mode_enabled"] = False
        settings["event_subscriptions"]["request_url"] = settings["interactivity"]["request_url"] = url
        for command in manifest["features"].get("slash_commands", ()):
            command["url"] = url
    return manifest


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """Return a manifest for the JSON tab of Slack's dialog."""
    return json.dumps(manifest, indent=2, ensure_ascii=False)


def creation_url(manifest: Mapping[str, Any]) -> str:
    """Return the address of Slack's dialog with the manifest filled in; empty if it would be too long."""
    compact = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False)
    url = f"{CREATE_URL}?new_app=1&manifest_json={quote(compact, safe='/:,')}"
    return url if len(url) <= LONGEST_URL else ""


def _left_out(features: Collection[str]) -> tuple[Feature, ...]:
    # The agent view is a view of direct messages.
    names = {*features, "agent"} if "direct" in features else {*features}
    return tuple(feature for feature in FEATURES if feature.name in names)


def _leave_out(manifest: dict[str, Any], names: Collection[str]) -> None:
    features, settings = manifest["features"], manifest["settings"]
    scopes = scopes_without(names)
    events = {event for feature in FEATURES if feature.name in names for event in feature.events}
    bot = manifest["oauth_config"]["scopes"]
    bot["bot"] = [scope for scope in bot["bot"] if scope not in scopes]
    subscriptions = settings["event_subscriptions"]
    subscriptions["bot_events"] = [event for event in subscriptions["bot_events"] if event not in events]
    if "commands" in names:
        del features["slash_commands"], features["shortcuts"]
    if "agent" in names:
        del features["agent_view"]
    features["app_home"]["messages_tab_enabled"] = "direct" not in names
    features["app_home"]["home_tab_enabled"] = "home" not in names
