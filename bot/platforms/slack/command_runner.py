"""Commands: said behind a slash, to the bot, by a button or in a window; answered where they were given.

A form needs a trigger, which lives for three seconds: where there is none, or answering takes longer, the answer is a
button that opens the form.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from bot.domain.commands import ActionStyle, Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import InboundMessage, Member
from bot.errors import DeliveryFailed
from bot.platforms.slack.command_messages import command_reply
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.forms import form_to_modal
from bot.platforms.slack.ids import conversation
from bot.platforms.slack.mentions import resolve_reply_mentions
from bot.platforms.slack.outgoing import CommandReply
from bot.platforms.slack.responders import Responder, ResponseTarget, responder_for
from bot.platforms.slack.uploads import upload

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 2.5
"""A trigger is good for three; what is left is for the way."""
ANSWER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class TriggerId:
    """The right to open a window, until a time of the event loop's clock."""

    id: str
    until: float

    @classmethod
    def fresh(cls, trigger_id: str) -> TriggerId | None:
        """One that was just handed out."""
        return cls(trigger_id, asyncio.get_running_loop().time() + TRIGGER_SECONDS) if trigger_id else None

    @property
    def is_valid(self) -> bool:
        """It can still be used."""
        return asyncio.get_running_loop().time() < self.until


class CommandRunner:
    """Hands commands to whoever answers them, and shows what comes back."""

    def __init__(self, desk: PlatformContext) -> None:
        self._api = desk.api
        self._commands = desk.commands
        self._engine = desk.engine
        self._people = desk.people

    async def run(
        self, words: tuple[str, ...], member: Member, place: ResponseTarget, trigger: TriggerId | None
    ) -> None:
        """Answer a command. Raises DeliveryFailed."""
        name, *rest = words
        where = conversation((await self._api.identity()).team, place.spot.channel, place.spot.thread)
        request = Invocation(name, tuple(rest), member, where)
        answers = responder_for(self._api, place)
        async with asyncio.timeout(ANSWER_SECONDS), aclosing(_closable(self._commands.handle(request))) as coming:
            await self._show_all(coming, words, place, trigger, answers)

    async def submit(
        self,
        form: str,
        fields: Mapping[str, str],
        member: Member,
        place: ResponseTarget,
        progress: Callable[[CommandReply], Awaitable[None]],
    ) -> Form | Reply | None:
        """Take a form back, and show what comes of it where the command was given. What comes before that goes to
        `progress`: behind a slash command it could not be replaced. A form is returned instead, to be put into the
        window. Raises DeliveryFailed.
        """
        where = conversation((await self._api.identity()).team, place.spot.channel, place.spot.thread)
        request = FormSubmission(form, fields, member, where)
        last: Reply | None = None
        async with asyncio.timeout(ANSWER_SECONDS), aclosing(_closable(self._commands.handle(request))) as coming:
            async for answer in coming:
                if isinstance(answer, Form):
                    return answer
                last = await resolve_reply_mentions(self._people, answer)
                await progress(command_reply(last))
                await self._deliver(last, place)
        if last is not None:
            await responder_for(self._api, place).finish(command_reply(last))
        return last

    async def _show_all(
        self,
        coming: AsyncIterator[Reply | Form],
        words: tuple[str, ...],
        place: ResponseTarget,
        trigger: TriggerId | None,
        answers: Responder,
    ) -> None:
        last: Reply | None = None
        async for answer in coming:
            if isinstance(answer, Form):
                last = await self._open(answer, words, place, trigger)
                break
            last = await resolve_reply_mentions(self._people, answer)
            await answers.progress(command_reply(last))
            await self._deliver(last, place)
        if last is not None:
            await answers.finish(command_reply(last))

    async def _open(
        self, form: Form, words: tuple[str, ...], place: ResponseTarget, trigger: TriggerId | None
    ) -> Reply | None:
        """Open a form; what to say instead where it cannot be opened."""
        if trigger is not None and trigger.is_valid:
            try:
                await self._api.post("views.open", trigger_id=trigger.id, view=form_to_modal(form, str(place)))
            except DeliveryFailed as error:
                log.warning("a form could not be opened: %s", error)
            else:
                return None
        details = (("or on one line", form.instead),) if form.instead else ()
        return Reply(
            "This needs a form.", details=details, actions=(ReplyAction("Open the form", words, ActionStyle.PRIMARY),)
        )

    async def _deliver(self, reply: Reply, place: ResponseTarget) -> None:
        """What comes along with a reply: a message for the engine, a document."""
        if reply.message is not None:
            await self._hand_on(reply, reply.message, place)
        if reply.document is not None:
            await upload(self._api, place.spot, reply.document, private=reply.private)

    async def _hand_on(self, reply: Reply, message: InboundMessage, place: ResponseTarget) -> None:
        """Hand a message to the engine; outside a thread one begins with it, for everybody to see."""
        if not place.spot.thread:
            sheet = command_reply(replace(reply, message=None))
            answer = await self._api.post(
                "chat.postMessage",
                channel=place.spot.channel,
                text=sheet.text,
                blocks=list(sheet.blocks) or None,
                unfurl_links=False,
                unfurl_media=False,
            )
            message = replace(message, conversation=replace(message.conversation, thread=str(answer.get("ts") or "")))
        await self._engine.receive(message)


async def _closable(answers: AsyncIterator[Reply | Form]) -> AsyncGenerator[Reply | Form, None]:
    """The answers as a generator that can be closed, whatever they are."""
    async for answer in answers:
        yield answer
