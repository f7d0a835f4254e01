"""Running commands: their replies, forms and files, and the messages to the engine that they lead to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from bot.chat.message_model import Message
from bot.chat.rejection_messages import NOT_SHARED, error_message
from bot.chat.reply_messages import reply_message, reply_text
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, ReplyFile
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.errors import CountersignError, DeliveryFailed
from bot.ports import Commands, EngineApi
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

REPLY_SECONDS = 300.0
WHOLE_REPLY = "answer.txt"


class Responder(Protocol):
    """Shows the replies to one command of a user, each in place of the previous one. Methods raise DeliveryFailed."""

    @property
    def is_awaited(self) -> bool:
        """True if the user sees that a reply is to come."""

    async def progress(self, reply: Message) -> None:
        """Show a reply that another one may follow. May be skipped."""

    async def finish(self, reply: Message) -> bool:
        """Show the last reply. Return False if something is omitted, because it exceeds a message."""

    async def open_form(self, form: Form) -> bool:
        """Open a form now. Return False if that is impossible."""

    async def offer_form(self, form: Form, words: tuple[str, ...]) -> None:
        """Show, as the last reply, a button that opens a form (`form_offer`). `words` are the command that leads to the
        form, none after an earlier step of it.
        """

    async def tell(self, text: str) -> None:
        """Show a sentence beside the last reply."""

    async def share(self, file: ReplyFile, *, private: bool) -> None:
        """Share a file of the last reply; a private one with the user alone."""

    async def start_thread(self, message: InboundMessage) -> str:
        """Start a public thread about a message to the engine, which says who sends what. Return its id, empty if none
        can be started.
        """


class CommandRunner:
    """Runs commands and submitted forms. `resolve_mentions` replaces principals in a reply by names."""

    def __init__(
        self,
        commands: Commands,
        engine: EngineApi,
        resolve_mentions: Callable[[ConversationKey, Reply], Awaitable[Reply]],
    ) -> None:
        self._commands = commands
        self._engine = engine
        self._resolve_mentions = resolve_mentions

    async def run(self, request: Invocation | FormSubmission, responder: Responder) -> None:
        """Run a command and show its replies. Raises CountersignError, and TimeoutError after the time limit."""
        async with asyncio.timeout(REPLY_SECONDS), aclosing(_closable(self._commands.handle(request))) as replies:
            last = await self._show_replies(replies, request, responder)
        if last is None:
            return
        if not await responder.finish(reply_message(last)):
            await share_file(responder, ReplyFile(WHOLE_REPLY, reply_text(last), "text/plain"), private=last.private)
        if last.document is not None:
            await share_file(responder, last.document, private=last.private)

    async def run_typed(self, request: Invocation, responder: Responder) -> None:
        """Run a command in a message. The last reply says if it failed. Raises DeliveryFailed."""
        try:
            await self.run(request, responder)
        except (CountersignError, TimeoutError) as error:
            log.warning("command failed: %s", error)
            await responder.finish(reply_message(Reply(error_message(error), failed=True)))

    async def _show_replies(
        self, replies: AsyncIterator[Reply | Form], request: Invocation | FormSubmission, responder: Responder
    ) -> Reply | None:
        """Return the last reply, which is not complete yet; None if there is nothing more to show."""
        last = Reply("")
        async for reply in replies:
            if isinstance(reply, Form):
                if not await responder.open_form(reply):
                    await responder.offer_form(reply, _words_of(request))
                return None
            if reply.message is not None:
                await self._start_turn(reply.message, responder)
                if not (reply.private or responder.is_awaited):
                    return None  # the turn shows enough
            last = await self._resolve_mentions(request.conversation, reply)
            await responder.progress(reply_message(last))
        return last

    async def _start_turn(self, message: InboundMessage, responder: Responder) -> None:
        """Pass a message to the engine. Outside of a thread it starts one, if possible."""
        conversation = message.conversation
        if not conversation.thread:
            conversation = replace(conversation, thread=await responder.start_thread(message))
        await self._engine.receive(replace(message, conversation=conversation))


async def share_file(responder: Responder, file: ReplyFile, *, private: bool = True) -> None:
    """Share a file of a reply, or tell the user that it could not be shared. Raises DeliveryFailed if both fail."""
    try:
        await responder.share(file, private=private)
    except DeliveryFailed as error:
        log.warning("file not shared: %s", error)
        await responder.tell(NOT_SHARED.format(file.name))


def thread_title(message: InboundMessage) -> str:
    """Return the text of the message that starts a public thread."""
    return single_line(f"{message.author.name}: {message.text}", 300)


def _words_of(request: Invocation | FormSubmission) -> tuple[str, ...]:
    return (request.command, *request.words) if isinstance(request, Invocation) else ()


async def _closable(replies: AsyncIterator[Reply | Form]) -> AsyncGenerator[Reply | Form, None]:
    """Return the replies as a generator that can be closed."""
    async for reply in replies:
        yield reply
