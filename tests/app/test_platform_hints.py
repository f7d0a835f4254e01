"""Hints to the model about the platform that displays its text."""

from __future__ import annotations

import pytest

from bot.app.runtime import PLATFORM_HINTS
from bot.domain.conversations import ConversationKey
from bot.engine.prompt.messages import SystemPrompt


@pytest.mark.parametrize(
    ("key", "named", "shared"),
    [
        (ConversationKey("slack", "T1", "C1", "1.2"), "Slack", True),
        (ConversationKey("slack", "T1", "G1", "1.2"), "Slack", True),
        (ConversationKey("slack", "T1", "D1", "1.2"), "Slack", False),
        (ConversationKey("discord", "7", "8", "9"), "Discord", True),
        (ConversationKey("console", "local", "ana", "1"), "terminal", False),
        (ConversationKey("api", "slack:T1", "job", "1"), "program", False),
        (ConversationKey("other", "w", "c", "1"), "", False),
    ],
)
def test_the_model_knows_where_it_is_read_and_names_people_where_there_are_several(
    key: ConversationKey, named: str, shared: bool
) -> None:
    prompt = SystemPrompt("", PLATFORM_HINTS)
    assert named in prompt.text(key, "")
    assert prompt.is_shared(key) is shared
