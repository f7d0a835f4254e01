"""Slack's agent surface: the status of a turn's thread, the title of an agent's thread, a reaction, suggested prompts.

All of it is optional: a method that a workspace or the app's scopes forbid is tried once, logged once, and left out.
Slack reports that the pane was opened (`app_home_opened` with the tab `messages`), that its user looks at something
else (`app_context_changed`), and for apps with the older surface a new thread (`assistant_thread_started`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.domain.locales import use_locale
from bot.domain.turns import Turn, TurnView
from bot.engine.locales import LocaleResolver
from bot.errors import DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.platforms.slack.channels import MessageRef, conversation, direct_channel
from bot.platforms.slack.sending import NOT_AVAILABLE
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import SlackWebApiError, WebApi
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

SET_STATUS = "assistant.threads.setStatus"
RENAME = "agents.sessions.rename"
EYES = "eyes"
STATUS_LIMIT = 100
TITLE_LIMIT = 60
STATUS_SECONDS = 90.0
"""Seconds after which an unchanged status is sent again: Slack clears it after two minutes."""
MOST_REMEMBERED = 1000
_DONE = frozenset({"already_reacted", "no_reaction", "message_not_found"})


class SlackActivity:
    """Statuses, titles and reactions of one workspace. No method raises."""

    def __init__(self, api: WebApi, clock: Callable[[], float] = monotonic) -> None:
        self._api = api
        self._clock = clock
        self._unable: set[str] = set()
        self._shown: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def show_activity(self, view: TurnView, text: str, *, is_shown: bool) -> bool:
        """Set the status of the turn's thread, unless a message shows the same. Slack clears it when a message is
        posted there. Return False if Slack shows no status there.
        """
        turn, thread = view.turn, view.turn.conversation
        if is_shown or not thread.thread:
            return is_shown
        status = _("is {activity}", activity=f"{text[:1].lower()}{text[1:]}")
        last, at = self._shown.get(turn.id, ("", 0.0))
        if status == last and self._clock() - at < STATUS_SECONDS:
            return True
        self._remember(turn.id, status)
        kind = thread.channel[:1]
        where = {"channel_id": thread.channel, "thread_ts": thread.thread}
        is_set = await self._try(SET_STATUS, kind, **where, status=f"{single_line(status, STATUS_LIMIT)}…")
        if is_set and not last and kind == "D" and turn.seq == 1:
            await self._try(RENAME, kind, **where, title=_title(turn))
        return is_set

    async def acknowledge(self, turn: Turn) -> None:
        """React to the question of a turn."""
        await self._react("reactions.add", turn)

    async def withdraw(self, turn: Turn) -> None:
        """Remove the reaction."""
        await self._react("reactions.remove", turn)

    async def _react(self, method: str, turn: Turn) -> None:
        question = MessageRef.parse(turn.question.message_id)
        if question is not None:
            await self._try(method, "", channel=question.channel, timestamp=question.ts, name=EYES)

    async def _try(self, method: str, kind: str, **arguments: Any) -> bool:
        """Call a method. Return False if it fails. One that the workspace does not allow in this kind of channel is not
        called there again.
        """
        key = f"{method} {kind}"
        if key in self._unable or not self._api.pacing.has_headroom(method):
            return False
        try:
            await self._api.edit(method, **arguments)
        except SlackWebApiError as refusal:
            if refusal.code in _DONE:
                return True
            if refusal.code in NOT_AVAILABLE:
                self._unable.add(key)
            log.info("%s is left out: %s", method, refusal)
            return False
        except DeliveryFailed as failure:
            log.info("%s failed: %s", method, failure)
            return False
        return True

    def _remember(self, turn_id: str, status: str) -> None:
        self._shown[turn_id] = (status, self._clock())
        self._shown.move_to_end(turn_id)
        while len(self._shown) > MOST_REMEMBERED:
            self._shown.popitem(last=False)


def _title(turn: Turn) -> str:
    """Return the title of a thread: its question, without the characters that Slack's clients misread."""
    return single_line(turn.question.text.translate(str.maketrans(":/", "  ")), TITLE_LIMIT) or _("Question")


METHOD = "assistant.threads.setSuggestedPrompts"
USUAL_PROMPTS = (
    gettext_lazy("What can you do for me here?"),
    gettext_lazy("Which tools can you use, and which of them need an approval?"),
)
"""Prompts of a profile without any."""
MOST_PROMPTS = 4


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
        locales: LocaleResolver,
    ) -> None:
        self._api = api
        self._people = people
        self._audience = audience
        self._find = find
        self._locales = locales

    async def show(self, pane: OpenedPane) -> None:
        """Show the prompts in a pane, unless its user gets no answers. Raises CountersignError."""
        member = await self._people.member(pane.user)
        if self._audience.rejection(member):
            return
        channel = pane.channel or await direct_channel(self._api, pane.user)
        where = conversation((await self._api.identity()).team, channel, pane.thread)
        prompts = self._find(where) if self._find is not None else ()
        if not prompts:
            with use_locale(await self._locales.for_user(member.author, member.locale, where)):
                prompts = tuple(map(str, USUAL_PROMPTS))
        try:
            await self._api.edit(
                METHOD,
                channel_id=channel,
                thread_ts=pane.thread or None,
                prompts=[
                    {"title": single_line(prompt, TITLE_LIMIT), "message": str(prompt)}
                    for prompt in prompts[:MOST_PROMPTS]
                ],
            )
        except DeliveryFailed as failure:
            log.info("no prompts suggested: %s", failure)
