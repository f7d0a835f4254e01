"""What people do beside talking and pressing: they open the bot's Home, press Slack's own Stop, use the shortcut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.chat.thread_context import format_lines
from bot.domain.conversations import InboundMessage
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.ephemeral import ChannelRef, send_ephemeral, text_message
from bot.platforms.slack.home_refresher import HomeRefresher
from bot.platforms.slack.ids import conversation
from bot.platforms.slack.interactions import InteractionHandler
from bot.platforms.slack.markup import MentionResolver, defuse_mentions, escape, to_plain_text
from bot.platforms.slack.modal_results import Window
from bot.platforms.slack.modals import modal, text_input
from bot.platforms.slack.responders import ResponseTarget
from bot.rendering.text_safety import single_line

ASK = "cs.ask"
QUESTION = "question"
LONGEST_QUOTE = 1_500
RECENT_TURNS = 10
NOT_HERE = "I cannot read along here. Invite me to the channel first."


class ShortcutHandler:
    """Takes them. What they set off goes on after the acknowledgement."""

    def __init__(self, desk: PlatformContext, counter: InteractionHandler, tabs: HomeRefresher) -> None:
        self._desk = desk
        self._counter = counter
        self._tabs = tabs

    def event(self, event: Mapping[str, Any]) -> None:
        """An event that is no message."""
        user = str(event.get("user") or "")
        match event.get("type"):
            case "app_home_opened" if event.get("tab") == "home" and user:
                self._desk.errands.start_for(
                    user, self._tabs.open(user, first_visit="view" not in event), "slack: home"
                )
            case "agent_session_stopped" if user:
                place = ResponseTarget(
                    ChannelRef(str(event.get("channel") or ""), user, str(event.get("thread_ts") or ""))
                )
                self._counter.begin(self._stop_all(place), place, "stop")
            case _:
                return

    def shortcut(self, body: Mapping[str, Any]) -> None:
        """The shortcut on a message: asks what the person wants to know about it."""
        message, channel, user = (_dict(body, name) for name in ("message", "channel", "user"))
        if body.get("callback_id") != ASK or not message.get("ts"):
            return
        thread = str(message.get("thread_ts") or message["ts"])
        place = ResponseTarget(ChannelRef(str(channel.get("id") or ""), str(user.get("id") or ""), thread))
        said = single_line(str(message.get("text") or ""), LONGEST_QUOTE)
        view = _question_window(place, str(message.get("user") or ""), said)
        self._counter.begin(self._open(str(body.get("trigger_id") or ""), view), place, "shortcut")

    def asked(self, body: Mapping[str, Any]) -> bool:
        """Whether a sent window is the shortcut's; if so, its question is handed on."""
        view, user = _dict(body, "view"), _dict(body, "user")
        if view.get("callback_id") != ASK:
            return False
        kept = json.loads(str(view.get("private_metadata") or "[]"))
        place = ResponseTarget.parse(kept[0]) if len(kept) == 3 else None
        if place is not None:
            place = replace(place, spot=replace(place.spot, user=str(user.get("id") or "")))
            errand = self._ask(str(view.get("id")), _typed(view), place, str(kept[1]), str(kept[2]))
            self._counter.begin(errand, place, "shortcut")
        return True

    async def _stop_all(self, place: ResponseTarget) -> None:
        member = await self._desk.people.member(place.spot.user)
        if self._desk.manners.rejection(member):
            return
        for view in await self._desk.engine.recent_turns(await self._counter.where(place), RECENT_TURNS):
            if not view.turn.status.ended:
                await self._desk.engine.stop(view.turn.id, member.author)

    async def _open(self, trigger: str, view: Window) -> None:
        await self._desk.api.post("views.open", trigger_id=trigger, view=view)

    async def _ask(self, view_id: str, question: str, place: ResponseTarget, author: str, said: str) -> None:
        """Hand a question on, with the message it is about; the thread reads who asked what."""
        desk, spot = self._desk, place.spot
        member = await desk.people.member(spot.user)
        if refusal := desk.manners.rejection(member):
            await send_ephemeral(desk.api, spot, text_message(refusal))
            return
        name = (await desk.people.person(author)).name if author else "somebody"
        await desk.api.post(
            "chat.postMessage",
            channel=spot.channel,
            thread_ts=spot.thread,
            text=escape(defuse_mentions(f"{member.author.name} asks about this: {question}")),
            unfurl_links=False,
            unfurl_media=False,
        )
        team = (await desk.api.identity()).team
        await desk.engine.receive(
            InboundMessage(
                keys=(f"slack:{team}:window:{view_id}",),
                conversation=conversation(team, spot.channel, spot.thread),
                author=member.author,
                text=question,
                context=format_lines([(name, to_plain_text(said, MentionResolver()))]),
            )
        )


def _question_window(place: ResponseTarget, author: str, said: str) -> Window:
    field = text_input(QUESTION, "What do you want to know about this message?", required=True, longest=2_000)
    kept = json.dumps([str(place.without_response_url), author, said], ensure_ascii=False)
    return modal("Ask about this", [field], callback_id=ASK, metadata=kept, submit="Ask")


def _typed(view: Mapping[str, Any]) -> str:
    field = _dict(_dict(_dict(view, "state"), "values"), QUESTION)
    return str(_dict(field, QUESTION).get("value") or "").strip()


def _dict(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}
