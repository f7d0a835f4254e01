"""Commands from slash commands, mentions, buttons and modals, answered in the conversation they came from.

Opening a modal needs a trigger id, which lives for three seconds. Without a valid one the answer is a button that opens
the form.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from bot.chat.actions import OpenConfirmation, RunCommand
from bot.domain.commands import ActionStyle, Form, FormSubmission, Invocation, PageInfo, Reply, ReplyAction
from bot.domain.conversations import InboundMessage, Member
from bot.errors import DeliveryFailed
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    CommandReply,
    Element,
    button,
    buttons,
    fallback,
    fallback_text,
    fits_a_table,
    link_button,
    preformatted,
    rich_section,
    rich_text,
    shortened,
    small,
    table,
    words,
)
from bot.platforms.slack.channels import conversation
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.files import upload
from bot.platforms.slack.modals import form_to_modal
from bot.platforms.slack.responders import Responder, ResponseTarget, responder_for
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.platforms.slack.users import resolve_reply_mentions
from bot.rendering.markdown import SizeLimit, split, text_weight
from bot.rendering.text_columns import columns
from bot.rendering.text_safety import open_label, single_line, strip_control

# -------------------- command messages
# Cells and details of a reply are plain text; its text is trusted Markdown.

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 1_000)
NAME_LIMIT = 60
CELL_LIMIT = 300
DETAIL_LIMIT = 1_500
DONE = "Done."
_STYLES = {ActionStyle.PLAIN: "", ActionStyle.PRIMARY: "primary", ActionStyle.DANGER: "danger"}


def reply_sheets(reply: Reply) -> tuple[CommandReply, ...]:
    """Return a reply as one or more messages; the buttons are in the last one."""
    pages = _pages(reply)
    way = link_button(open_label(reply.link), reply.link) if reply.link else None
    ends = [*buttons([way, *_actions(reply.actions)]), *(_turning(reply.page) if reply.page else [])]
    return tuple(_sheet(page, ends if number == len(pages) - 1 else []) for number, page in enumerate(pages))


def command_reply(reply: Reply) -> CommandReply:
    """Return a reply as one message, for places where the next message replaces it. Omitted parts are counted."""
    first, *others = reply_sheets(reply)
    if not others:
        return first
    left = sum(len(fallback_text(each.blocks)) for each in others)
    ends = [block for block in others[-1].blocks if block["type"] == "actions"]
    return CommandReply((*first.blocks, *small(f"… {left} more characters, which do not fit here"), *ends), first.text)


def _sheet(blocks: Sequence[Block], ends: Sequence[Block]) -> CommandReply:
    return CommandReply((*blocks, *ends), fallback(fallback_text(blocks)))


def _pages(reply: Reply) -> list[list[Block]]:
    """Return the blocks, joined into messages within the limits."""
    pages: list[list[Block]] = [[]]
    used = 0
    for piece in _pieces(reply):
        size = text_weight(fallback_text(piece))
        if pages[-1] and used + size > ROOM.most:
            pages.append([])
            used = 0
        pages[-1] += piece
        used += size
    return pages


def _pieces(reply: Reply) -> Iterator[list[Block]]:
    text = strip_control(reply.text).strip()
    rows = reply.table.rows if reply.table is not None else ()
    if not (text or rows or reply.details):
        text = DONE
    for part in split(f"⚠ {text}" if reply.failed else text, ROOM):
        prose = RichTextBuilder()
        prose.markdown(part)
        yield prose.blocks
    if reply.table is not None and rows:
        yield from _table((reply.table.headings, *rows))
    if reply.details:
        yield from _details(reply.details)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[list[Block]]:
    """Return a table block, or monospaced text over several messages if the table exceeds Slack's limits."""
    cells = [[single_line(cell, CELL_LIMIT) for cell in row] for row in rows]
    if fits_a_table(cells) and sum(text_weight(cell) for row in cells for cell in row) <= ROOM.most:
        heads, *body = cells
        elements: list[list[list[Element]]] = [[[words(cell, bold=True)] for cell in heads]]
        yield [table([*elements, *([[words(cell)] for cell in row] for row in body)])]
        return
    for part in split(columns(cells), ROOM):
        yield [rich_text(preformatted(part.rstrip("\n")))]


def _details(details: Sequence[tuple[str, str]]) -> Iterator[list[Block]]:
    """Return names and values, one below the other."""
    lines: list[Element] = []
    for name, value in details:
        lines += [words("\n")] if lines else []
        lines += [words(f"{single_line(name, NAME_LIMIT)}: ", bold=True), words(_value(value))]
        if sum(text_weight(line["text"]) for line in lines) > ROOM.good // 2:
            yield [rich_text(rich_section(*lines))]
            lines = []
    if lines:
        yield [rich_text(rich_section(*lines))]


def _value(value: str) -> str:
    text = strip_control(value).strip()
    more = len(text) - DETAIL_LIMIT
    return (
        f"{text[:DETAIL_LIMIT]}… ({more} more characters)"
        if more > 0
        else shortened(text or "\N{EN DASH}", DETAIL_LIMIT)
    )


def _actions(actions: Sequence[ReplyAction]) -> list[Element | None]:
    return [
        button(
            action.label,
            OpenConfirmation(action.words, action.confirm, action.label)
            if action.confirm
            else RunCommand(action.words),
            _STYLES[action.tone],
        )
        for action in actions
    ]


def _turning(page: PageInfo) -> list[Block]:
    back = button("◀ Back", RunCommand((*page.words, "--page", str(page.number - 1)))) if page.number > 1 else None
    on = button("More ▶", RunCommand((*page.words, "--page", str(page.number + 1)))) if page.number < page.of else None
    return [*small(f"Page {page.number} of {page.of}"), *buttons([back, on])]


log = logging.getLogger(__name__)

TRIGGER_SECONDS = 2.5
"""Seconds that a trigger id is used. Slack allows three; the rest is for the network."""
ANSWER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class TriggerId:
    """Trigger id of an interaction, valid until a time of the event loop's clock."""

    id: str
    until: float

    @classmethod
    def fresh(cls, trigger_id: str) -> TriggerId | None:
        """Return a trigger id that was received now, or None if it is empty."""
        return cls(trigger_id, asyncio.get_running_loop().time() + TRIGGER_SECONDS) if trigger_id else None

    @property
    def is_valid(self) -> bool:
        """True while a modal can be opened with it."""
        return asyncio.get_running_loop().time() < self.until


class CommandRunner:
    """Runs commands and posts their replies."""

    def __init__(self, platform: PlatformContext) -> None:
        self._api = platform.api
        self._commands = platform.commands
        self._engine = platform.engine
        self._people = platform.people

    async def run(
        self, words: tuple[str, ...], member: Member, place: ResponseTarget, trigger: TriggerId | None
    ) -> None:
        """Run a command and answer it. Raises DeliveryFailed."""
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
        """Submit a form and post the reply in the conversation of the command. Earlier replies go to `progress`,
        because they could not be replaced behind a slash command. Return a form to show in the modal instead. Raises
        DeliveryFailed.
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
        """Open a form. Return a reply to post instead if it cannot be opened."""
        if trigger is not None and trigger.is_valid:
            try:
                await self._api.post("views.open", trigger_id=trigger.id, view=form_to_modal(form, str(place)))
            except DeliveryFailed as error:
                log.warning("form not opened: %s", error)
            else:
                return None
        details = (("or on one line", form.instead),) if form.instead else ()
        return Reply(
            "This needs a form.", details=details, actions=(ReplyAction("Open the form", words, ActionStyle.PRIMARY),)
        )

    async def _deliver(self, reply: Reply, place: ResponseTarget) -> None:
        """Deliver the parts of a reply that are no text: a message for the engine, a file."""
        if reply.message is not None:
            await self._hand_on(reply, reply.message, place)
        if reply.document is not None:
            await upload(self._api, place.spot, reply.document, private=reply.private)

    async def _hand_on(self, reply: Reply, message: InboundMessage, place: ResponseTarget) -> None:
        """Pass a message to the engine. Outside a thread it starts a public thread."""
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
    """Return the replies as a generator that can be closed."""
    async for answer in answers:
        yield answer
