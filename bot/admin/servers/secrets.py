"""Secrets of servers: `/mcp secret set`, `clear`, `rotate`, and one-time links for entering a secret in a browser.

Values are entered at a hidden prompt or behind a link, and never shown. Only a saved secret uses up a link; views,
invalid values and failed access checks do not. Rights are checked again on submission, because the browser does not
identify the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.admin.command import (
    SECRET_FIELD,
    SERVER,
    Answers,
    CommandContext,
    CommandRejected,
    SubmissionContext,
    Verbs,
    form_of,
    verb,
)
from bot.admin.dependencies import MEMBER_SECONDS, CommandDependencies, UserMessenger, notify_user
from bot.admin.servers.definition import (
    LONGEST_SECRET,
    SIGN_IN_SLOTS,
    ParsedDefinition,
    command_line,
    entered_values,
    enters_pair,
    weak_secret_warning,
)
from bot.admin.servers.directory import ServerDirectory, VisibleServer
from bot.admin.servers.sign_in import SIGN_IN, SignInSteps
from bot.admin.servers.validation import ServerValidator
from bot.admin.text_format import error_reply, format_change, sentences, server_label
from bot.domain.commands import Field, FieldKind, Form, Parameter, Reply, ReplyAction
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.locales import use_locale
from bot.domain.secrets import LINK_SECONDS, LINK_TOKEN, SecretLink, SecretReference, SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    OAUTH_KINDS,
    USER_SLOT,
    AuthenticationKind,
    HttpTransport,
    ServerRecord,
    StdioTransport,
    is_reserved_header,
)
from bot.errors import Conflict, CountersignError, DatabaseError, DeliveryFailed, NotFound
from bot.i18n import _, gettext_lazy, ngettext
from bot.ports import LinkStore

PATH = "/secret/"
"""Path of the form; the token follows it."""
SWITCH_ON = gettext_lazy(
    "The operator can have secrets entered on a page of the bot's own instead, by one-time links: `PUBLIC_URL` "
    "switches them on."
)
_STORED = SecretReference(SecretSource.STORED)
_WANTED_PAIR = gettext_lazy("User name and password, as USER:PASSWORD,")

_SLOT = Parameter("slot", "`auth`, `header:NAME`, `env:NAME` or `sign-in`", required=True)
_A_SLOT = Parameter("slot", "`auth` (the default), `header:NAME`, `env:NAME` or `sign-in`")
_REFERENCE = Parameter("reference", "where the secret is", metavar="env:NAME|file:/path")


# -------------------- one-time links


class SecretLinks:
    """Creates one-time links if the operator has enabled them."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._links = dependencies.links

    @property
    def enabled(self) -> bool:
        """True if one-time links are enabled."""
        return self._links is not None

    def defer_missing(self, draft: ParsedDefinition, slots: Mapping[str, str] = SIGN_IN_SLOTS) -> None:
        """Take errors about missing secrets that can be entered later out of a draft. `slots` are by field."""
        if self.enabled:
            draft.defer_missing(slots)

    async def ask_reply(self, record: ServerRecord, by: Author, conversation: ConversationKey, text: str) -> Reply:
        """Return a reply that asks for the missing secrets: with a link for the first, or with a command for each if
        links are disabled.
        """
        first, *others = missing_slots(record)
        if self.enabled:
            reply = await self.link_reply(record, first, by, conversation, text)
            return replace(reply, details=(*reply.details, *_commands(record, others)))
        how = _(
            "The operator can type it in a terminal: `{command}`.",
            command=f"/mcp secret set {record.config.name} {first}",
        )
        return Reply(sentences(text, how, SWITCH_ON), details=_commands(record, others))

    async def link_reply(
        self, record: ServerRecord, slot: str, by: Author, conversation: ConversationKey, text: str
    ) -> Reply:
        """Return a private reply with a link for this slot after `text`, which is Markdown of this project. Earlier
        links of the user for this slot become invalid.
        """
        assert self._links is not None, "links are switched off"
        _link, token = await self._links.store.create_link(record.id, slot, by, conversation)
        address = f"{self._links.address}{PATH}{token}"
        minutes = int(LINK_SECONDS // 60)
        return Reply(
            sentences(
                text,
                _("[Enter the secret]({address}).", address=address),
                _("The link works once, for {minutes} minutes, for you: keep it to yourself.", minutes=minutes),
            ),
            details=((gettext_lazy("secret"), slot),),
            actions=(ReplyAction(_("Another link"), ("mcp", "secret", "set", record.config.name, slot)),),
        )


def missing_slots(record: ServerRecord) -> tuple[str, ...]:
    """Return the slots of missing secrets, the authentication secret first."""
    # A user name is entered together with its password.
    with_password = {USER_SLOT} if AUTH_SECRET in record.missing else set[str]()
    return tuple(sorted(record.missing - with_password, key=lambda slot: (slot != AUTH_SECRET, slot)))


def missing_secrets_text(record: ServerRecord) -> str:
    """Return a short text about the missing secrets."""
    slots = missing_slots(record)
    if slots == (AUTH_SECRET,):
        return _("the secret it signs in with")
    return ngettext("{n} secret", "{n} secrets", len(slots))


def _commands(record: ServerRecord, slots: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((gettext_lazy("also"), f"/mcp secret set {record.config.name} {slot}") for slot in slots)


# -------------------- verbs


def _is_sign_in(request: CommandContext) -> bool:
    return request.arguments.get("slot").lower().replace("_", "-") == SIGN_IN


class ServerSecrets(Verbs):
    """Verbs of `/mcp secret`."""

    def __init__(
        self,
        dependencies: CommandDependencies,
        directory: ServerDirectory,
        validator: ServerValidator,
        sign_in_steps: SignInSteps,
    ) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._validator = validator
        self._links = SecretLinks(dependencies)
        self._sign_in_steps = sign_in_steps

    @verb("secret set", "say where a secret is", (SERVER, _SLOT, _REFERENCE), aliases=("secret",))
    async def _set(self, request: CommandContext) -> Reply | Form | Answers:
        if _is_sign_in(request):
            return self._sign_in_steps.sign_in_again(request)
        _server, record = await self._editable(request)
        await self._validator.check_allowed(record.config)
        slot = _slot(record, request.arguments.get("slot"))
        nowhere = _(
            "Where is the secret? Give `env:NAME` or `file:/path`. The secret itself can be typed only at the "
            "operator's own terminal."
        )
        return await self._take(record, slot, request, nowhere)

    @form_of("secret set")
    async def _submit(self, context: SubmissionContext) -> Reply | Form:
        server_id, version, *_rest = (*context.state, "", "")
        server = await self._directory.find(server_id, context.conversation)
        record = self._directory.record_of(server, context.member)
        self._validator.may_define(record.config, context.member)
        await self._validator.check_allowed(record.config)
        slot = _slot(record, context.fields.get("slot", ""))
        value = context.fields.get(SECRET_FIELD, "").strip()
        if not value and not context.errors:
            # An empty pipe stays empty: do not ask again.
            raise CommandRejected(_("No secret was typed, so none is set."))
        values, value_error = entered_values(record, slot, value)
        error = context.errors.get(SECRET_FIELD, "") or value_error
        if error:
            return secret_form(record, slot, error)
        if str(record.version) != version:
            return self._version_conflict(record)
        return await self._save(record, slot, _STORED, values, context.author)

    @verb("secret clear", "take a secret away", (SERVER, _SLOT), aliases=("secret remove",))
    async def _clear(self, request: CommandContext) -> Reply:
        if _is_sign_in(request):
            return await self._sign_in_steps.sign_out(request)
        server, record = await self._editable(request)
        slot = _slot(record, request.arguments.get("slot"))
        if slot not in record.secrets:
            return error_reply(
                _("{server} has no such secret. Nothing was changed.", server=server_label(server.config))
            )
        secrets = {name: reference for name, reference in record.secrets.items() if name != slot}
        authentication = record.authentication
        if slot == AUTH_SECRET and authentication.kind is not AuthenticationKind.OAUTH:
            authentication = replace(authentication, kind=AuthenticationKind.NONE)
            secrets.pop(USER_SLOT, None)
        changed = replace(record, secrets=secrets, authentication=authentication)
        return await self._change(changed, {}, request.author, {f"secret {slot}": "set → nothing"}, cleared=True)

    @verb("secret rotate", "use a new value of a secret", (SERVER, _A_SLOT, _REFERENCE))
    async def _rotate(self, request: CommandContext) -> Reply | Form | Answers:
        if _is_sign_in(request):
            return self._sign_in_steps.sign_in_again(request)
        server, record = await self._editable(request)
        await self._validator.check_allowed(record.config)
        slot = _slot(record, request.arguments.get("slot") or AUTH_SECRET)
        reference = record.secrets.get(slot)
        if reference is None:
            raise CommandRejected(
                _("{server} has no such secret yet: `/mcp secret set` sets it.", server=server_label(server.config))
            )
        if reference.source is not SecretSource.STORED and not request.arguments.get("reference"):
            # References are read again whenever the record is.
            return await self._save_reference(record, slot, reference, request.member)
        nowhere = _(
            "This secret is kept by the bot. Type the new one at the operator's own terminal, or say where it is: "
            "`/mcp secret rotate NAME SLOT env:NAME`."
        )
        return await self._take(record, slot, request, nowhere)

    async def _take(
        self, record: ServerRecord, slot: str, request: CommandContext, nowhere: str
    ) -> Reply | Form | Answers:
        """Save the given reference, or ask for the secret itself. Raises CommandRejected with `nowhere` if it cannot be
        entered here.
        """
        if text := request.arguments.get("reference"):
            return await self._save_reference(record, slot, _reference(text), request.member)
        if not (request.hidden_input or self._links.enabled):
            raise CommandRejected(sentences(nowhere, SWITCH_ON))
        check_use(record, slot)
        if request.hidden_input:
            return secret_form(record, slot)
        label = server_label(record.config)
        text = _("A secret of {server} is entered on a page of the bot's own, never in a chat.", server=label)
        return await self._links.link_reply(record, slot, request.author, request.conversation, text)

    async def _editable(self, request: CommandContext) -> tuple[VisibleServer, ServerRecord]:
        server, record = await self._directory.get_editable(request.arguments.get("server"), request)
        self._validator.may_define(record.config, request.member)
        return server, record

    async def _save_reference(
        self, record: ServerRecord, slot: str, reference: SecretReference, member: Member
    ) -> Reply:
        """Save a reference if it is the operator's or granted."""
        draft = ParsedDefinition(replace(record, secrets={**record.secrets, slot: reference}))
        self._validator.check_references(draft, record, member)
        if draft.errors:
            raise CommandRejected(sentences(*draft.errors.values()))
        return await self._save(record, slot, draft.record.secrets[slot], {}, member.author)

    async def _save(
        self, record: ServerRecord, slot: str, reference: SecretReference, values: Mapping[str, str], by: Author
    ) -> Reply:
        before = record.secrets.get(slot)
        check_use(record, slot)
        changed = replace(record, secrets={**record.secrets, **dict.fromkeys(values, reference), slot: reference})
        change = f"{before or 'nothing'} → {reference}"
        return await self._change(changed, values, by, {f"secret {slot}": change})

    async def _change(
        self,
        record: ServerRecord,
        values: Mapping[str, str],
        by: Author,
        changes: Mapping[str, str],
        *,
        cleared: bool = False,
    ) -> Reply:
        try:
            saved = await self._dependencies.stores.servers.change(record, values, by, changes=changes)
        except Conflict as conflict:
            return replace(self._version_conflict(record), details=((gettext_lazy("cause"), str(conflict)),))
        await self._dependencies.administration.refresh()
        verify = ReplyAction(_("Verify"), ("mcp", "verify", record.config.name))
        if saved.missing:
            texts = {"server": server_label(record.config), "secrets": missing_secrets_text(saved)}
            return Reply(
                _("The secret of {server} is cleared; it waits for {secrets}.", **texts)
                if cleared
                else _("The secret of {server} is set; it waits for {secrets}.", **texts),
                actions=(enter_secret(saved, missing_slots(saved)[0]), verify),
            )
        secrets = ngettext("{n} secret", "{n} secrets", len(record.secrets))
        texts = {"server": server_label(record.config), "secrets": secrets}
        text = (
            _("The secret of {server} is cleared; it has {secrets} now, and connects again.", **texts)
            if cleared
            else _("The secret of {server} is set; it has {secrets} now, and connects again.", **texts)
        )
        return Reply(sentences(text, weak_secret_warning(values)), actions=(verify,))

    def _version_conflict(self, record: ServerRecord) -> Reply:
        change = format_change(record.updated_at, record.updated_by, self._dependencies.clock())
        return Reply(
            _("{server} has been changed meanwhile. Nothing was saved.", server=server_label(record.config)),
            details=((gettext_lazy("changed"), change),),
            failed=True,
            actions=(ReplyAction(_("Show"), ("mcp", "show", record.config.name)),),
        )


def enter_secret(record: ServerRecord, slot: str) -> ReplyAction:
    """Return the action to enter a missing secret, which the operator's terminal offers."""
    name = record.config.name
    return ReplyAction(
        _("Enter {slot} of {server}", slot=slot, server=name),
        ("mcp", "secret", "set", name, slot),
        question=_("Enter the secret {slot} of {server} now?", slot=slot, server=name),
    )


def secret_form(record: ServerRecord, slot: str, error: str = "", intro: str = "") -> Form:
    """Return the hidden prompt for a secret."""
    hint = _("it is not shown, and kept encrypted")
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
        _("Secret {slot} of {server}", slot=slot, server=record.config.name),
        (field,),
        intro=intro or _("The secret itself. It is not shown again, and no log has it."),
        carried={"slot": slot},
        instead="/mcp secret set NAME SLOT env:NAME",
    )


def _label(record: ServerRecord, slot: str, *, named_server: bool) -> str:
    texts = {"slot": slot, "server": record.config.name}
    if slot == AUTH_SECRET and enters_pair(record):
        if named_server:
            return _("Secret {slot} of {server}, as USER:PASSWORD", **texts)
        return _("Secret, as USER:PASSWORD")
    return _("Secret {slot} of {server}", **texts) if named_server else _("Secret")


def _slot(record: ServerRecord, text: str) -> str:
    """Return the canonical name of a slot of this server. Raises CommandRejected."""
    kind, _colon, name = text.partition(":")
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
    slots_text = "`env:NAME`" if isinstance(record.config.transport, StdioTransport) else _("`auth` or `header:NAME`")
    raise CommandRejected(
        _("A secret of {server} is for {slots}.", server=server_label(record.config), slots=slots_text)
    )


def check_use(record: ServerRecord, slot: str) -> None:
    """Check that the server uses such a secret, before it is typed. Raises CommandRejected."""
    authentication = record.authentication
    if slot == AUTH_SECRET and authentication.kind is AuthenticationKind.OAUTH and not authentication.client_id:
        raise CommandRejected(
            _(
                "{server} is signed in to without a client of its own, so there is no secret of one. Say which client: "
                "`{command}`.",
                server=server_label(record.config),
                command=f"/mcp edit {record.config.name} --client-id ID",
            )
        )
    if slot == AUTH_SECRET and authentication.kind is AuthenticationKind.NONE:
        raise CommandRejected(
            _(
                "{server} does not sign in. Say how it should: `{command}`.",
                server=server_label(record.config),
                command=f"/mcp edit {record.config.name} --auth api_key --secret env:NAME",
            )
        )


def _fits(name: str, more: str) -> bool:
    return bool(name) and len(name) < 60 and name.replace(more, "").replace("_", "").isalnum() and name.isascii()


def _reference(text: str) -> SecretReference:
    try:
        return SecretReference.parse(text)
    except ValueError:
        raise CommandRejected(
            _(
                "That is no reference, and it was not saved. Give `env:NAME` or `file:/absolute/path`: where the "
                "secret is, never the secret itself. If that was one, rotate it."
            )
        ) from None


# -------------------- the form behind a link


@dataclass(frozen=True, slots=True)
class SecretPrompt:
    """Texts of the form, plain. `server` is the slug and `title` the display name; `wanted` describes the secret,
    `goes_to` its use. `version` is the server's, `time_zone` the user's, empty if it is unknown.
    """

    link: SecretLink
    server: str
    title: str
    wanted: str
    goes_to: str
    version: int
    time_zone: str = ""


@dataclass(frozen=True, slots=True)
class SecretSaved:
    """The secret is saved, and the link is used up. `warning` is about a weak secret."""

    entry: SecretPrompt
    warning: str = ""


@dataclass(frozen=True, slots=True)
class SecretRejected:
    """The value cannot be a secret; the link stays valid. `why` does not repeat it."""

    entry: SecretPrompt
    why: str


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """The server was changed since the form was shown. No secret was saved; the link stays valid."""

    entry: SecretPrompt


@dataclass(frozen=True, slots=True)
class Denied:
    """The user has lost the right, or saving failed. `why` is Markdown of this project, or an error's own text."""

    why: str


@dataclass(frozen=True, slots=True)
class AccessCheckFailed:
    """The rights could not be checked now; the link stays valid. `why` is plain text."""

    why: str


Outcome = SecretSaved | SecretRejected | ServerChanged | Denied | AccessCheckFailed | None
"""None: the link is unknown, used or expired, or its server is gone."""


class SecretEntry:
    """Shows the form of a link, and saves the secret."""

    def __init__(self, dependencies: CommandDependencies, links: LinkStore, people: UserMessenger) -> None:
        self._dependencies = dependencies
        self._links = links
        self._messenger = people
        self._directory = ServerDirectory(dependencies)
        self._validator = ServerValidator(dependencies, self._directory)

    async def show(self, token: str) -> SecretPrompt | None:
        """Return the form of a link, None if the link is invalid. The link stays valid. Raises DatabaseError."""
        match = await self._find(token)
        return None if match is None else await self._prompt(*match)

    async def save_secret(self, token: str, version: str, value: str) -> Outcome:
        """Save a secret. `version` is the server's version in the form. Raises DatabaseError."""
        match = await self._find(token)
        if match is None:
            return None
        link, record = match
        prompt, value = await self._prompt(link, record), value.strip()
        values, why = entered_values(record, link.slot, value)
        if why:
            return SecretRejected(prompt, why)
        if str(record.version) != version:
            # The server may have a new address, for which the secret was not meant.
            return ServerChanged(prompt)
        member = await self._check_access(link, record)
        if not isinstance(member, Member):
            return member
        if await self._links.use_link(token) is None:
            return None
        return await self._save(prompt, record, values, member.author)

    async def notify_user(self, prompt: SecretPrompt) -> None:
        """Send a message to the user of the link, if possible."""
        link = prompt.link
        with use_locale(await self._messenger.locale(link.person, link.conversation)):
            text = _(
                "The secret {slot} of {server} is set. /mcp verify {server} says whether it works.",
                slot=link.slot,
                server=prompt.server,
            )
        await notify_user(self._messenger, link.person, link.conversation, text)

    async def _prompt(self, link: SecretLink, record: ServerRecord) -> SecretPrompt:
        config = record.config
        match config.transport:
            case HttpTransport(url):
                to_another = link.slot == AUTH_SECRET and record.authentication.kind in OAUTH_KINDS
                goes_to = _("the authorization server of {url}", url=url) if to_another else url
            case StdioTransport():
                goes_to = command_line(config)
        wanted, title = _slot_text(link.slot, record), config.title or config.name
        locale = await self._messenger.locale(link.person, link.conversation)
        return SecretPrompt(link, config.name, title, wanted, goes_to, record.version, locale.time_zone)

    async def _find(self, token: str) -> tuple[SecretLink, ServerRecord] | None:
        """Return the link and its current server; None if the server is no longer visible in its workspace."""
        link = await self._links.find(token) if LINK_TOKEN.fullmatch(token) else None
        if link is None:
            return None
        servers = await self._directory.all(link.conversation)
        record = next(
            (server.record for server in servers if server.record is not None and server.id == link.server_id), None
        )
        return None if record is None else (link, record)

    async def _check_access(self, link: SecretLink, record: ServerRecord) -> Member | Denied | AccessCheckFailed:
        """Return the user of the link if the rights still suffice."""
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                member = await self._messenger.member(link.person, link.conversation)
        except DeliveryFailed as failure:
            return AccessCheckFailed(failure.cause)
        except TimeoutError:
            return AccessCheckFailed(_("Your platform did not answer in time."))
        if not self._dependencies.rights.administers(member):
            return Denied(_("Only {who} can do this, and you cannot any more.", who=self._dependencies.rights.who))
        try:
            self._directory.record_of(VisibleServer(record.config, record), member)
            self._validator.may_define(record.config, member)
            check_use(record, link.slot)
            await self._validator.check_allowed(record.config)
        except CommandRejected as rejection:
            return Denied(str(rejection))
        return member

    async def _save(self, prompt: SecretPrompt, record: ServerRecord, values: Mapping[str, str], by: Author) -> Outcome:
        slot = prompt.link.slot
        changed = replace(record, secrets={**record.secrets, **dict.fromkeys(values, _STORED)})
        changes = {f"secret {slot}": f"{record.secrets.get(slot) or 'nothing'} → {_STORED}, by a one-time link"}
        try:
            await self._dependencies.stores.servers.change(changed, values, by, changes=changes)
        except Conflict:
            return Denied(_("The server was changed at this very moment. Ask for another link."))
        except NotFound:
            return None
        except DatabaseError:
            # It may be saved: only the response to the COMMIT may have been lost.
            return Denied(
                _(
                    "The database went away just now. `/mcp show {server}` says whether the secret is set.",
                    server=prompt.server,
                )
            )
        except CountersignError as error:
            return Denied(str(error))
        with suppress(DatabaseError):
            # It is saved: if this process cannot refresh now, its next poll does.
            await self._dependencies.administration.refresh()
        return SecretSaved(prompt, weak_secret_warning(values))


def _slot_text(slot: str, record: ServerRecord) -> str:
    """Return the description of a slot in the provider's words."""
    authentication = record.authentication
    kind, _colon, name = slot.partition(":")
    match kind, authentication.kind:
        case "header", _:
            return _("Value of the header {name}", name=name)
        case "env", _:
            return _("Value of the variable {name}", name=name)
        case _, AuthenticationKind.BASIC:
            pair = str(_WANTED_PAIR) if enters_pair(record) else _("Password")
            return _("User name") if slot == USER_SLOT else pair
        case _, AuthenticationKind.API_KEY:
            return _("API key")
        case _, AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS:
            return _("Secret of the OAuth client {client}", client=authentication.client_id).rstrip()
        case _, AuthenticationKind.HEADER | AuthenticationKind.NONE:
            return _("Value of the header {name}", name=authentication.header)
