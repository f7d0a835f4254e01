"""Suggested prompts in the pane of the agent, from the profile of the conversation.

Slack reports that the pane was opened (`app_home_opened` with the tab `messages`), that its user looks at something
else (`app_context_changed`), and for apps with the older surface a new thread (`assistant_thread_started`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.chat.context import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.platforms.slack.channels import conversation, direct_channel
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

METHOD = "assistant.threads.setSuggestedPrompts"
USUAL_PROMPTS = ("What can you do for me here?", "Which tools can you use, and which of them need an approval?")
"""Prompts of a profile without any."""
MOST_PROMPTS = 4
TITLE_LIMIT = 60


@dataclass(frozen=True, slots=True)
class OpenedPane:
    """A pane that is open: its user, its direct channel, empty if unknown, and its thread, empty under agent view."""

    user: str
    channel: str = ""
    thread: str = ""


def opened_pane(event: Mapping[str, Any]) -> OpenedPane | None:
    """Return the pane of an event; None for any other event."""
    match event:
        case {"type": "app_home_opened", "tab": "messages", "user": str(user), "channel": str(channel)}:
            return OpenedPane(user, channel)
        case {"type": "app_context_changed", "user": str(user)}:
            place = str(event.get("channel") or "")
            return OpenedPane(user, place if place.startswith("D") else "")
        case {
            "type": "assistant_thread_started",
            "assistant_thread": {"user_id": str(user), "channel_id": str(channel), "thread_ts": str(thread)},
        }:
            return OpenedPane(user, channel, thread)
        case _:
            return None


class SuggestedPrompts:
    """Shows the prompts of the profile. `find` returns those of a conversation; None suggests the usual ones."""

    def __init__(
        self,
        api: WebApi,
        people: UserDirectory,
        audience: AudiencePolicy,
        find: Callable[[ConversationKey], Sequence[str]] | None,
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._find = find

    async def show(self, pane: OpenedPane) -> None:
        """Show the prompts in a pane, unless its user gets no answers. Raises CountersignError."""
        member = await self._people.member(pane.user)
        if self._audience.rejection(member):
            return
        channel = pane.channel or await direct_channel(self._api, pane.user)
        where = conversation((await self._api.identity()).team, channel, pane.thread)
        prompts = (self._find(where) if self._find is not None else ()) or USUAL_PROMPTS
        try:
            await self._api.edit(
                METHOD,
                channel_id=channel,
                thread_ts=pane.thread or None,
                prompts=[
                    {"title": single_line(prompt, TITLE_LIMIT), "message": prompt} for prompt in prompts[:MOST_PROMPTS]
                ],
            )
        except DeliveryFailed as failure:
            log.info("no prompts suggested: %s", failure)
