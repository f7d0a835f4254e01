"""`/mcp add`: by options at once, or by a form in steps. What is wrong is said all at once, under its field; a server
is looked at as soon as it is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from bot.commands.command import SECRET_FIELD, Deed, Filled, Request
from bot.commands.definitions import KINDS, TRANSPORTS, Drafted, drafted, is_slug, slug_of
from bot.commands.parts import CommandParts
from bot.commands.phrases import policy_meant
from bot.commands.server_drafting import ServerDrafting, starts
from bot.commands.server_forms import form, steps_of_adding
from bot.commands.server_options import (
    ADD,
    all_wrong,
    argv_given,
    fields_given,
    next_step,
    on_form,
    split,
    step_number,
    unconfirmed,
    under,
)
from bot.domain.commands import Form, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.servers import EVERYWHERE, HttpTransport, ServerConfig, ServerRecord
from bot.errors import Conflict

_INSTEAD = "/mcp add NAME --url URL [--auth header --secret SECRETREF], or --command CMD --arg ARG"
_NOTHING = "Nothing was added."
_SIGNING_IN = 2
"""The step of the form that asks for the secret."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """Who wants what, and for where."""

    name: str
    fields: Mapping[str, str]
    member: Member
    conversation: ConversationKey
    everywhere: bool
    argv: tuple[str, ...] = ()
    hidden: str = ""


class ServerAdding:
    """Adds servers."""

    def __init__(self, parts: CommandParts, drafting: ServerDrafting) -> None:
        self._parts = parts
        self._drafting = drafting

    @property
    def deed(self) -> Deed:
        """The verb."""
        return Deed(ADD, self._add, self._adding)

    async def _add(self, request: Request) -> AsyncIterator[Reply | Form]:
        arguments, member = request.arguments, request.member
        if not arguments:
            yield _form({}, {}, 1, hidden_input=request.hidden_input)
            return
        name = arguments.one("name")
        fields = fields_given(arguments)
        if name and not is_slug(name):
            fields.setdefault("title", name)
        everywhere = self._drafting.operates(member) and not arguments.given("here")
        wish = _Wish(name, fields, member, request.conversation, everywhere, argv_given(arguments))
        draft = await self._draft(wish)
        if draft.errors.keys() == {"secret"} and not arguments.given("secret") and request.hidden_input:
            # All it lacks can be typed here without an echo.
            yield _form(_as_filled(wish, arguments.one("policy")), {}, _SIGNING_IN, hidden_input=True)
            return
        if draft.errors:
            yield all_wrong(_NOTHING, draft.errors, "add")
            return
        try:
            record = await self._keep(draft, arguments.one("policy"), request.author)
        except Conflict as conflict:
            yield all_wrong(_NOTHING, under(conflict, {}), "add")
            return
        async for reply in self._drafting.looked_at(record, "added", verify=not arguments.given("no-verify")):
            yield reply

    async def _adding(self, filled: Filled) -> AsyncIterator[Reply | Form]:
        fields = {"transport": TRANSPORTS[0], "auth": KINDS[0], **filled.fields}
        number = step_number(filled)
        steps = steps_of_adding(fields, hidden_input=filled.hidden_input)
        title, local = fields.get("title", "").strip(), fields["transport"] == "stdio"
        wish = _Wish(
            title,
            split(fields),
            filled.member,
            filled.conversation,
            self._drafting.operates(filled.member),
            hidden=fields.get(SECRET_FIELD, "").strip(),
        )
        draft = await self._draft(wish)
        errors = {**on_form(draft.errors), **filled.errors}
        if local and number == len(steps):
            errors |= unconfirmed(fields, title)
        step = next_step(steps, number, errors)
        if step is not None:
            intro = starts(draft.record.config) if local and step > 1 else ""
            yield _form(fields, errors, step, hidden_input=filled.hidden_input, intro=intro)
            return
        try:
            record = await self._keep(draft, fields.get("policy", ""), filled.author)
        except Conflict as conflict:
            yield _form(fields, on_form(under(conflict, {})), 1, hidden_input=filled.hidden_input)
            return
        async for reply in self._drafting.looked_at(record, "added", verify=True):
            yield reply

    async def _draft(self, wish: _Wish) -> Drafted:
        slug = wish.name if is_slug(wish.name) else slug_of(wish.name)
        workspace = EVERYWHERE if wish.everywhere else wish.conversation.home
        blank = ServerConfig(slug, HttpTransport(""), id=str(uuid.uuid4()), workspace=workspace)
        record = ServerRecord(blank, created_by=wish.member.author.principal)
        draft = drafted(record, wish.fields, hidden=wish.hidden, argv=wish.argv)
        if not slug:
            draft.errors["name"] = "What is it called? There must be a letter from a to z or a digit in it."
        return await self._drafting.judge(draft, wish.member, wish.conversation)

    async def _keep(self, draft: Drafted, policy: str, by: Author) -> ServerRecord:
        record = await self._parts.server_store.add(draft.record, draft.secrets, by, policy=policy_meant(policy))
        await self._parts.administration.refresh()
        return record


def _as_filled(wish: _Wish, policy: str) -> dict[str, str]:
    """What was said by options, as the fields of the form's steps."""
    fields = {"title": wish.name, "transport": TRANSPORTS[0], **wish.fields, "where": wish.fields.get("url", "")}
    return {**fields, **({"policy": policy} if policy else {})}


def _form(
    fields: Mapping[str, str], errors: Mapping[str, str], step: int, *, hidden_input: bool, intro: str = ""
) -> Form:
    return form(
        "mcp add",
        "Add an MCP server",
        steps_of_adding(fields, hidden_input=hidden_input),
        step,
        values=fields,
        errors=errors,
        submit="Add and verify",
        intro=intro,
        instead=_INSTEAD,
    )
