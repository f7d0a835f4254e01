"""Running commands: their replies as messages, offers of forms, replies as text for a file if they exceed a message,
and the messages to the engine that they lead to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from bot.chat.actions import Action, OpenConfirmation, RunCommand, error_message, not_shared_text
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Caption,
    Facts,
    LinkButton,
    Markdown,
    Message,
    Paragraph,
    Table,
    Text,
    fill_spans,
)
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, ReplyFile
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.locales import UNKNOWN, Locale
from bot.engine.locales import LocaleResolver
from bot.errors import CountersignError, DeliveryFailed
from bot.i18n import _, gettext_lazy
from bot.ports import Commands, EngineApi
from bot.rendering.tables import columns
from bot.rendering.text_safety import open_label, safe_url, single_line, strip_control

NAME_LIMIT = 60
CELL_LIMIT = 300
INSTEAD_LIMIT = 500
DONE = gettext_lazy("Done.")
NEEDS_FORM = gettext_lazy("This needs a form.")
NOT_YET_RIGHT = gettext_lazy("⚠ Not yet right:")
NO_VALUE = "\N{EN DASH}"
log = logging.getLogger(__name__)
REPLY_SECONDS = 300.0
WHOLE_REPLY = "answer.txt"


def reply_message(reply: Reply) -> Message:
    """Return a reply as a message. Its text is the bot's own Markdown; cells and details are literal."""
    return Message("reply", tuple(_blocks(reply)))


def form_offer(form: Form, action: Action, *, begun: bool) -> Message:
    """Return a message with a button that opens a form by `action`, and the form's errors. `begun` is True after a step
    of the form was filled in.
    """
    errors = tuple((single_line(field.label, NAME_LIMIT), field.error) for field in form.fields if field.error)
    blocks: list[Block] = []
    if form.intro:
        blocks.append(Paragraph((Text(strip_control(form.intro).strip(), unlinked=True),)))
    if errors:
        blocks += [Paragraph((Text(str(NOT_YET_RIGHT)),)), Facts(errors)]
        label = _("Correct it")
    elif begun:
        title = Text(single_line(form.title, NAME_LIMIT), bold=True)
        blocks.append(Paragraph(fill_spans(_("{form}: there is more to fill in."), form=title)))
        label = _("Continue")
    else:
        blocks.append(Paragraph((Text(str(NEEDS_FORM)),)))
        if form.instead:
            command = Text(single_line(form.instead, INSTEAD_LIMIT), code=True)
            blocks.append(Paragraph(fill_spans(_("Or on one line: {command}"), command=command)))
        label = _("Open the form")
    return Message("form", (*blocks, Buttons((Button(label, action, ButtonStyle.PRIMARY),))))


def reply_text(reply: Reply) -> str:
    """Return the whole reply as plain text."""
    parts = [strip_control(reply.text).strip()]
    if reply.table is not None and reply.table.rows:
        parts.append(
            columns([[strip_control(cell) for cell in row] for row in (reply.table.headings, *reply.table.rows)])
        )
    parts += [f"{strip_control(name)}: {strip_control(value)}" for name, value in reply.details]
    return "\n\n".join(filter(None, parts)) + "\n"


def _blocks(reply: Reply) -> Iterator[Block]:
    text = strip_control(reply.text).strip()
    rows = reply.table.rows if reply.table is not None else ()
    if not (text or rows or reply.details):
        text = str(DONE)
    if text:
        yield Markdown(f"⚠ {text}" if reply.failed else text)
    if reply.table is not None and rows:
        headings, *cells = (
            tuple(single_line(cell, CELL_LIMIT) for cell in row) for row in (reply.table.headings, *rows)
        )
        yield Table(headings, tuple(cells))
    if reply.details:
        facts = ((single_line(name, NAME_LIMIT), strip_control(value).strip()) for name, value in reply.details)
        # Beside a link that needs care there is no other one.
        yield Facts(tuple((name, value or NO_VALUE) for name, value in facts), unlinked=bool(reply.link))
    buttons = []
    for offer in reply.actions:
        label = str(offer.label)
        action = OpenConfirmation(offer.words, offer.confirm, label) if offer.confirm else RunCommand(offer.words)
        buttons.append(Button(label, action, ButtonStyle(offer.tone)))
    if (page := reply.page) is not None:
        yield Caption((_("Page {number} of {count}", number=page.number, count=page.of),))
        pages = ((_("◀ Back"), page.number - 1), (_("More ▶"), page.number + 1))
        buttons += [
            Button(label, RunCommand((*page.words, "--page", str(number))))
            for label, number in pages
            if 1 <= number <= page.of
        ]
    links = (LinkButton(open_label(reply.link), reply.link),) if safe_url(reply.link) else ()
    if buttons or links:
        yield Buttons(tuple(buttons), links=links)


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
        """Start a public thread about a message to the engine, with its author and text. Return its id, empty if none
        can be started.
        """


class CommandRunner:
    """Runs commands and submitted forms. `resolve_mentions` replaces principals in a reply by names."""

    def __init__(
        self,
        commands: Commands,
        engine: EngineApi,
        resolve_mentions: Callable[[ConversationKey, Reply], Awaitable[Reply]],
        locales: LocaleResolver,
    ) -> None:
        self._commands = commands
        self._engine = engine
        self._resolve_mentions = resolve_mentions
        self._locales = locales

    async def run(
        self,
        request: Invocation | FormSubmission,
        responder: Responder,
        *,
        direct: bool = False,
        place: Locale = UNKNOWN,
    ) -> None:
        """Run a command and show its replies. `direct` and `place` are those of an Actor. Raises CountersignError, and
        TimeoutError after the time limit.
        """
        last = Reply("")
        async with asyncio.timeout(REPLY_SECONDS), aclosing(_closable(self._commands.handle(request))) as replies:
            async for reply in replies:
                if isinstance(reply, Form):
                    if not await responder.open_form(reply):
                        words = (request.command, *request.words) if isinstance(request, Invocation) else ()
                        await responder.offer_form(reply, words)
                    return
                if reply.message is not None:
                    message = await self._locales.with_locales(reply.message, request.member, place, direct=direct)
                    conversation = message.conversation
                    if not conversation.thread:  # one is started, if possible
                        conversation = replace(conversation, thread=await responder.start_thread(message))
                    await self._engine.receive(replace(message, conversation=conversation))
                    if not (reply.private or responder.is_awaited):
                        return  # the turn shows enough
                last = await self._resolve_mentions(request.conversation, reply)
                await responder.progress(reply_message(last))
        if not await responder.finish(reply_message(last)):
            await share_file(responder, ReplyFile(WHOLE_REPLY, reply_text(last), "text/plain"), private=last.private)
        if last.document is not None:
            await share_file(responder, last.document, private=last.private)

    async def run_typed(
        self, request: Invocation, responder: Responder, *, direct: bool = False, place: Locale = UNKNOWN
    ) -> None:
        """Run a command in a message. The last reply says if it failed. Raises DeliveryFailed."""
        try:
            await self.run(request, responder, direct=direct, place=place)
        except (CountersignError, TimeoutError) as error:
            log.warning("command failed: %s", error)
            await responder.finish(reply_message(Reply(error_message(error), failed=True)))


async def share_file(responder: Responder, file: ReplyFile, *, private: bool = True) -> None:
    """Share a file of a reply, or tell the user that it could not be shared. Raises DeliveryFailed if both fail."""
    try:
        await responder.share(file, private=private)
    except DeliveryFailed as error:
        log.warning("file not shared: %s", error)
        await responder.tell(not_shared_text(file.name))


def thread_title(message: InboundMessage) -> str:
    """Return the text of the message that starts a public thread. It names the resources that go with a question."""
    question = single_line(f"{message.author.name}: {message.text}", 300)
    uris = [str(call.arguments["uri"]) for call in message.attached if "uri" in call.arguments]
    if not uris:
        return question
    return _("{question} (about {resources})", question=question, resources=single_line(", ".join(uris), 200 - 6))


async def _closable(replies: AsyncIterator[Reply | Form]) -> AsyncGenerator[Reply | Form, None]:
    async for reply in replies:
        yield reply
