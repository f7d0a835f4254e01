"""Effects of a message beyond its text: notified users, and links that Slack fetches.

If it is not documented whether Slack resolves a mention (Markdown, fallback text beside blocks), the mention counts. A
test without notified users here is therefore safe on the real Slack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fakes.slack.messages import Message

CALL = re.compile(r"<(?:@([UW][A-Z0-9]+)|!(channel|here|everyone)|!subteam\^([A-Z0-9]+))[^<>]*>")
LINK = re.compile(r"https?://[^\s<>|)\]]+")


def notified_ids(message: Message) -> set[str]:
    """Return the ids of the users and user groups a message calls, and 'channel', 'here', 'everyone'."""
    found: set[str] = set()
    for text in _message_texts(message):
        found |= {part for match in CALL.finditer(text) for part in match.groups() if part}
        if message.linked_names:
            found |= set(re.findall(r"@(channel|here|everyone)\b", text))
    for element in _elements(message.blocks):
        match element:
            case {"type": "user", "user_id": str(user)}:
                found.add(user)
            case {"type": "usergroup", "usergroup_id": str(group)}:
                found.add(group)
            case {"type": "broadcast", "range": str(everybody)}:
                found.add(everybody)
    return found


def fetched_addresses(message: Message) -> set[str]:
    """Return the addresses that Slack fetches for previews: empty without unfurling and for ephemeral messages."""
    if message.ephemeral_to or not (message.unfurl_links or message.unfurl_media):
        return set()
    linked = {str(e["url"]) for e in _elements(message.blocks) if e.get("type") == "link"}
    return linked | {match for text in _message_texts(message) for match in LINK.findall(text)}


def _message_texts(message: Message) -> Iterator[str]:
    """Yield every text in which Slack looks for mentions and links."""
    yield message.text
    yield message.markdown
    for element in _elements(message.blocks):
        if element.get("type") in {"mrkdwn", "markdown"} and isinstance(element.get("text"), str):
            yield element["text"]
    if message.stream is not None:
        for task in message.stream.tasks.values():
            yield from (value for value in task.values() if isinstance(value, str))
        yield message.stream.plan_title


def _elements(drawn: Any) -> Iterator[dict[str, Any]]:
    if isinstance(drawn, list):
        for item in drawn:
            yield from _elements(item)
    elif isinstance(drawn, dict):
        yield drawn
        for value in drawn.values():
            yield from _elements(value)
