"""`/mcp secret set`, `clear`, `rotate`: a server's secrets, and its sign-in by OAuth. Values are entered at a hidden
prompt or behind a one-time link, and never shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from bot.commands.argument_parser import SERVER, CommandRejected
from bot.commands.command import SECRET_FIELD, CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.secret_links import SWITCH_ON, SecretLinks
from bot.commands.server_checks import ServerValidator
from bot.commands.server_definition import LONGEST_SECRET, ParsedDefinition, entered_values, enters_pair
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.commands.sign_in import SIGN_IN, SignInSteps
from bot.commands.text_format import format_ago, pluralize, server_label
from bot.domain.commands import Field, FieldKind, Form, Parameter, Reply, ReplyAction, Verb
from bot.domain.conversations import Author, Member
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    USER_SLOT,
    AuthenticationKind,
    HttpTransport,
    ServerRecord,
    StdioTransport,
    is_reserved_header,
)
from bot.errors import Conflict

_SLOT = Parameter("slot", "`auth`, `header:NAME`, `env:NAME` or `sign-in`", required=True)
_A_SLOT = Parameter("slot", "`auth` (the default), `header:NAME`, `env:NAME` or `sign-in`")
_REFERENCE = Parameter("reference", "where the secret is", metavar="env:NAME|file:/path")


class ServerSecrets:
    """Verbs of `/mcp secret`."""

    def __init__(
        self, parts: CommandDependencies, directory: ServerDirectory, drafting: ServerValidator, signing_in: SignInSteps
    ) -> None:
        self._parts = parts
        self._directory = directory
        self._drafting = drafting
        self._links = SecretLinks(parts)
        self._signing_in = signing_in

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        put = Verb("secret set", "say where a secret is", (SERVER, _SLOT, _REFERENCE), aliases=("secret",))
        gone = Verb("secret clear", "take a secret away", (SERVER, _SLOT), aliases=("secret remove",))
        new = Verb("secret rotate", "use a new value of a secret", (SERVER, _A_SLOT, _REFERENCE))
        return VerbHandler(put, self._set, self._given), VerbHandler(gone, self._clear), VerbHandler(new, self._rotate)

    async def _set(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        if _is_sign_in(request):
            async for reply in self._signing_in.again(request):
                yield reply
            return
        _, record = await self._changeable(request)
        await self._drafting.check_allowed(record.config)
        slot = _slot(record, request.arguments.one("slot"))
        text = request.arguments.one("reference")
        if text:
            async for reply in self._refer(record, slot, _reference(text), request.member):
                yield reply
        elif request.hidden_input:
            check_use(record, slot)
            yield secret_form(record, slot)
        elif self._links.on:
            yield await self._linked(record, slot, request)
        else:
            raise CommandRejected(
                "Where is the secret? Give `env:NAME` or `file:/path`. The secret itself can be typed only at the "
                f"operator's own terminal. {SWITCH_ON}"
            )

    async def _given(self, filled: SubmissionContext) -> AsyncIterator[Reply | Form]:
        server_id, version, *_ = (*filled.state, "", "")
        seen = await self._directory.find(server_id, filled.conversation)
        record = self._directory.record_of(seen, filled.member)
        self._drafting.may_define(record.config, filled.member)
        await self._drafting.check_allowed(record.config)
        slot = _slot(record, filled.fields.get("slot", ""))
        value = filled.fields.get(SECRET_FIELD, "").strip()
        if not value and not filled.errors:
            # An empty pipe stays empty: do not ask again.
            raise CommandRejected("No secret was typed, so none is set.")
        values, objection = entered_values(record, slot, value)
        error = filled.errors.get(SECRET_FIELD, "") or objection
        if error:
            yield secret_form(record, slot, error)
            return
        if str(record.version) != version:
            yield self._overtaken(record)
            return
        async for reply in self._keep(record, slot, SecretReference(SecretSource.STORED), values, filled.author):
            yield reply

    async def _clear(self, request: CommandContext) -> AsyncIterator[Reply]:
        if _is_sign_in(request):
            async for reply in self._signing_in.end(request):
                yield reply
            return
        seen, record = await self._changeable(request)
        slot = _slot(record, request.arguments.one("slot"))
        if slot not in record.secrets:
            yield Reply(f"{server_label(seen.config)} has no such secret. Nothing was changed.", failed=True)
            return
        secrets = {name: kept for name, kept in record.secrets.items() if name != slot}
        authentication = record.authentication
        if slot == AUTH_SECRET and authentication.kind is not AuthenticationKind.OAUTH:
            authentication = replace(authentication, kind=AuthenticationKind.NONE)
            secrets.pop(USER_SLOT, None)
        changed = replace(record, secrets=secrets, authentication=authentication)
        async for reply in self._change(changed, {}, request.author, {f"secret {slot}": "set → nothing"}, "cleared"):
            yield reply

    async def _rotate(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        if _is_sign_in(request):
            async for reply in self._signing_in.again(request):
                yield reply
            return
        seen, record = await self._changeable(request)
        await self._drafting.check_allowed(record.config)
        slot = _slot(record, request.arguments.one("slot") or AUTH_SECRET)
        reference, text = record.secrets.get(slot), request.arguments.one("reference")
        if reference is None:
            raise CommandRejected(f"{server_label(seen.config)} has no such secret yet: `/mcp secret set` sets it.")
        if text:
            async for reply in self._refer(record, slot, _reference(text), request.member):
                yield reply
        elif reference.source is SecretSource.STORED and request.hidden_input:
            yield secret_form(record, slot)
        elif reference.source is SecretSource.STORED and self._links.on:
            yield await self._linked(record, slot, request)
        elif reference.source is SecretSource.STORED:
            raise CommandRejected(
                "This secret is kept by the bot. Type the new one at the operator's own terminal, or say where it is: "
                f"`/mcp secret rotate NAME SLOT env:NAME`. {SWITCH_ON}"
            )
        else:
            # References are read again whenever the record is.
            async for reply in self._refer(record, slot, reference, request.member):
                yield reply

    async def _linked(self, record: ServerRecord, slot: str, request: CommandContext) -> Reply:
        """Return a link to enter the secret."""
        check_use(record, slot)
        said = f"A secret of {server_label(record.config)} is entered on a page of the bot's own, never in a chat."
        return await self._links.offered(record, slot, request.member.author, request.conversation, said)

    async def _changeable(self, request: CommandContext) -> tuple[VisibleServer, ServerRecord]:
        """Return a server whose secrets the user may set: environment variables can change a program's behavior."""
        seen, record = await self._directory.get_editable(request.arguments.one("server"), request)
        self._drafting.may_define(record.config, request.member)
        return seen, record

    async def _refer(
        self, record: ServerRecord, slot: str, reference: SecretReference, member: Member
    ) -> AsyncIterator[Reply]:
        """Save a reference if it is the operator's or granted."""
        draft = ParsedDefinition(replace(record, secrets={**record.secrets, slot: reference}))
        self._drafting.judge_references(draft, record, member)
        if draft.errors:
            raise CommandRejected(" ".join(draft.errors.values()))
        async for reply in self._keep(record, slot, draft.record.secrets[slot], {}, member.author):
            yield reply

    async def _keep(
        self,
        record: ServerRecord,
        slot: str,
        reference: SecretReference,
        values: Mapping[str, str],
        by: Author,
    ) -> AsyncIterator[Reply]:
        before = record.secrets.get(slot)
        check_use(record, slot)
        changed = replace(record, secrets={**record.secrets, **dict.fromkeys(values, reference), slot: reference})
        said = f"{before or 'nothing'} → {reference}"
        async for reply in self._change(changed, values, by, {f"secret {slot}": said}, "set"):
            yield reply

    async def _change(
        self, record: ServerRecord, values: Mapping[str, str], by: Author, changes: Mapping[str, str], done: str
    ) -> AsyncIterator[Reply]:
        try:
            await self._parts.server_store.change(record, values, by, changes=changes)
        except Conflict as conflict:
            yield replace(self._overtaken(record), details=(("cause", str(conflict)),))
            return
        await self._parts.administration.refresh()
        kept = pluralize(len(record.secrets), "secret")
        yield Reply(
            f"The secret of {server_label(record.config)} is {done}; it has {kept} now, and connects again.",
            actions=(ReplyAction("Verify", ("mcp", "verify", record.config.name)),),
        )

    def _overtaken(self, record: ServerRecord) -> Reply:
        when = format_ago(record.updated_at, self._parts.clock())
        return Reply(
            f"{server_label(record.config)} has been changed meanwhile. Nothing was saved.",
            details=(("changed", f"{when} by {record.updated_by or 'somebody else'}"),),
            failed=True,
            actions=(ReplyAction("Show", ("mcp", "show", record.config.name)),),
        )


def secret_form(record: ServerRecord, slot: str, error: str = "", intro: str = "") -> Form:
    """Return the hidden prompt for a secret."""
    hint = "it is not shown, and kept encrypted"
    field = Field(
        SECRET_FIELD,
        _label(record, slot, named_server=bool(intro)),
        FieldKind.SECRET,
        hint,
        required=True,
        error=error,
        longest=LONGEST_SECRET,
    )
    return Form(
        f"mcp secret set:{record.id}:{record.version}",
        f"Secret {slot} of {record.config.name}",
        (field,),
        intro=intro or "The secret itself. It is not shown again, and no log has it.",
        carried={"slot": slot},
        instead="/mcp secret set NAME SLOT env:NAME",
    )


def _label(record: ServerRecord, slot: str, *, named_server: bool) -> str:
    pair = ", as USER:PASSWORD" if slot == AUTH_SECRET and enters_pair(record) else ""
    return f"Secret {slot} of {record.config.name}{pair}" if named_server else f"Secret{pair}"


def _is_sign_in(request: CommandContext) -> bool:
    """Return True if the command is about the sign-in, which is not a named secret."""
    return request.arguments.one("slot").lower().replace("_", "-") == SIGN_IN


def _slot(record: ServerRecord, text: str) -> str:
    """Return the canonical name of a slot of this server. Raises CommandRejected."""
    kind, _, name = text.partition(":")
    slots = {slot.lower(): slot for slot in record.secrets}
    if text.lower() in slots:
        return slots[text.lower()]
    match record.config.transport, kind.lower():
        case HttpTransport(), "auth" if not name:
            return AUTH_SECRET
        case HttpTransport(), "username" if not name and record.authentication.kind is AuthenticationKind.BASIC:
            return USER_SLOT
        case HttpTransport(), "header" if _fits(name, "-") and not is_reserved_header(name):
            return f"header:{name}"
        case StdioTransport(launch=None), "env" if _fits(name, "_"):
            return f"env:{name}"
    slot = "`env:NAME`" if isinstance(record.config.transport, StdioTransport) else "`auth` or `header:NAME`"
    raise CommandRejected(f"A secret of {server_label(record.config)} is for {slot}.")


def check_use(record: ServerRecord, slot: str) -> None:
    """Check that the server uses such a secret, before it is typed. Raises CommandRejected."""
    signing_in = record.authentication
    if slot == AUTH_SECRET and signing_in.kind is AuthenticationKind.OAUTH and not signing_in.client_id:
        raise CommandRejected(
            f"{server_label(record.config)} is signed in to without a client of its own, so there is no secret of "
            "one. Say "
            f"which client: `/mcp edit {record.config.name} --client-id ID`."
        )
    if slot == AUTH_SECRET and signing_in.kind is AuthenticationKind.NONE:
        raise CommandRejected(
            f"{server_label(record.config)} does not sign in. Say how it should: `/mcp edit {record.config.name} "
            "--auth api_key --secret env:NAME`."
        )


def _fits(name: str, more: str) -> bool:
    return bool(name) and len(name) < 60 and name.replace(more, "").replace("_", "").isalnum() and name.isascii()


def _reference(text: str) -> SecretReference:
    try:
        return SecretReference.parse(text)
    except ValueError:
        raise CommandRejected(
            "That is no reference, and it was not saved. Give `env:NAME` or `file:/absolute/path`: where the secret "
            "is, never the secret itself. If that was one, rotate it."
        ) from None
