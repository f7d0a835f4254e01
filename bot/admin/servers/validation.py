"""Validation of servers: drafts from fields, checks of the member's rights, and checks of a saved server. Commands and
the HTTP API share it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

from bot.admin.command import CommandRejected, ForbiddenRejection
from bot.admin.dependencies import CommandDependencies
from bot.admin.servers.checks import ServerChange, verify_server
from bot.admin.servers.definition import (
    SIGN_IN_SLOTS,
    SLOT,
    TEMPLATE,
    ParsedDefinition,
    ServerRequest,
    parse_definition,
    template_secrets,
)
from bot.admin.servers.directory import ServerDirectory, name_in_use
from bot.admin.servers.fields import is_slug, slug_of
from bot.admin.servers.listing import endpoint_facts
from bot.admin.servers.sign_in import SignInSteps
from bot.admin.text_format import known_facts, sentences, server_label
from bot.domain.commands import Reply
from bot.domain.conversations import ConversationKey, Member
from bot.domain.launch_templates import expand_template
from bot.domain.secret_binding import binding_of
from bot.domain.secrets import SecretSource
from bot.domain.servers import (
    AUTH_SECRET,
    EVERYWHERE,
    HttpTransport,
    ServerConfig,
    ServerRecord,
    StdioTransport,
    Transport,
)
from bot.i18n import _, gettext_lazy

_OPERATORS = gettext_lazy("Only the operator may have programs started on this machine.")
_STRICTER_ONLY = gettext_lazy(
    "Only the operator may make this less strict, also by leaving it to the server's hints. You may choose strangers "
    "or world."
)


class ServerValidator:
    """Creates and validates drafts."""

    def __init__(self, dependencies: CommandDependencies, directory: ServerDirectory) -> None:
        self._dependencies = dependencies
        self._directory = directory
        self._sign_in_steps = SignInSteps(dependencies, directory)

    def is_operator(self, member: Member) -> bool:
        """Return True if the member is the operator."""
        return self._dependencies.rights.operates(member)

    def may_define(self, config: ServerConfig, member: Member) -> None:
        """Check that the member may change such a definition. Raises ForbiddenRejection."""
        if _is_typed_program(config.transport) and not self.is_operator(member):
            raise ForbiddenRejection(sentences(_OPERATORS, _("This server is one.")))

    def is_name_allowed(self, slug: str) -> bool:
        """Return True if the operator allows this name."""
        return self._dependencies.operator.admits(slug)

    async def check_allowed(self, config: ServerConfig) -> None:
        """Check the definition against the operator's settings, without resolving secrets. Raises CommandRejected."""
        if not self.is_name_allowed(config.name):
            raise CommandRejected(
                _(
                    "MCP_ALLOWED_SERVERS does not list {server}, so it does not run and takes no secret. The operator "
                    "can add the name and restart the bot.",
                    server=server_label(config),
                )
            )
        if objection := await asyncio.to_thread(self._dependencies.administration.rejection_reason, config):
            raise CommandRejected(
                sentences(_("{server} does not run here and takes no secret.", server=server_label(config)), objection)
            )

    async def draft_new(self, server_request: ServerRequest) -> ParsedDefinition:
        """Return the draft of a new server."""
        slug = server_request.name if is_slug(server_request.name) else slug_of(server_request.name)
        workspace = EVERYWHERE if server_request.everywhere else server_request.conversation.workspace_key
        blank = ServerConfig(slug, HttpTransport(""), id=str(uuid.uuid4()), workspace=workspace)
        record = ServerRecord(blank, created_by=server_request.member.author.principal)
        draft = parse_definition(record, server_request, self._dependencies.operator.templates())
        self._check_flows(record, draft, server_request.member)
        if not slug:
            draft.errors["name"] = _("What is it called? There must be a letter from a to z or a digit in it.")
        await self.validate(draft, server_request.member, server_request.conversation)
        self.check_references(draft, None, server_request.member)
        if AUTH_SECRET in server_request.missing:
            draft.defer_missing(SIGN_IN_SLOTS)
        draft.await_secrets(slot for slot in server_request.missing if slot != AUTH_SECRET)
        draft.errors |= server_request.errors
        return draft

    async def draft_change(self, record: ServerRecord, server_request: ServerRequest) -> ParsedDefinition:
        """Return the draft of a changed server. Raises ForbiddenRejection."""
        self.may_define(record.config, server_request.member)
        draft = parse_definition(record, server_request, self._dependencies.operator.templates())
        await self.validate(draft, server_request.member, server_request.conversation)
        self.check_references(draft, record, server_request.member)
        self._check_flows(record, draft, server_request.member)
        return draft

    async def validate(
        self, draft: ParsedDefinition, member: Member, conversation: ConversationKey
    ) -> ParsedDefinition:
        """Return the draft with errors from outside of it: rights of the member, restrictions of addresses, names in
        use.
        """
        config = draft.record.config
        local = isinstance(config.transport, StdioTransport)
        if _is_typed_program(config.transport) and not self.is_operator(member):
            choose = (
                _("Choose streamable_http or a launch template.")
                if self._dependencies.operator.templates()
                else _("Choose streamable_http.")
            )
            draft.errors["transport"] = sentences(_OPERATORS, choose)
        place = "command" if local else "url"
        if launch := config.launch:
            template = self._dependencies.operator.templates().get(launch.template)
            paths = list(template.folders) if template else []
            place = f"{SLOT}{paths[0]}" if len(paths) == 1 else TEMPLATE
        misplaced = place in draft.errors or any(name.startswith(SLOT) for name in draft.errors)
        # In a thread, because it looks up paths on the disk.
        if not misplaced and (
            objection := await asyncio.to_thread(self._dependencies.administration.rejection_reason, config)
        ):
            draft.errors[place] = objection
        if not self.is_name_allowed(config.name):
            draft.errors.setdefault("name", _("MCP_ALLOWED_SERVERS does not list this name."))
        others = await self._directory.all(conversation)
        for name, text in (("name", config.name), ("title", config.title)):
            other = name_in_use(others, text, except_id=config.id) if text else None
            if other is not None:
                draft.errors.setdefault(name, _("This is taken by {server}.", server=other.name))
        return draft

    def check_references(self, draft: ParsedDefinition, before: ServerRecord | None, member: Member) -> None:
        """Mark the operator's references as vouched for. Add an error for each ungranted reference of another member
        that is new or has a new target.
        """
        after, secrets = draft.record, dict(draft.record.secrets)
        for slot, reference in after.secrets.items():
            if reference.source is SecretSource.STORED:
                continue
            secrets[slot] = replace(reference, vouched=self._dependencies.rights.vouches(member))
            if secrets[slot].vouched:
                continue
            known = None if before is None else before.secrets.get(slot)
            stays = before is not None and binding_of(before, slot) == binding_of(after, slot)
            if stays and known is not None and known.same_place(reference):
                secrets[slot] = known
            elif objection := self._dependencies.administration.reference_rejection(reference, after.config):
                draft.errors.setdefault(self._field_of(slot, after), objection)
        draft.record = replace(after, secrets=secrets)

    def _field_of(self, slot: str, record: ServerRecord) -> str:
        """Return the field of a slot's reference."""
        slots = template_secrets(record, self._dependencies.operator.templates())
        fields = {own_slot: name for name, own_slot in slots.items()} | {AUTH_SECRET: "secret"}
        kinds = {"header": "headers", "env": "env"}
        return fields.get(slot) or kinds.get(slot.partition(":")[0], "secret")

    def _check_flows(self, before: ServerRecord, draft: ParsedDefinition, member: Member) -> None:
        """Add an error if calls would need approval less often: only the operator may decide that."""
        flows, current = draft.record.config.flows, before.config.flows
        if self.is_operator(member) or not flows.loosens(current):
            return
        names = ("words", "sends", "tool_words", "tool_sends", "tool_recipients")
        changed = [name for name in names if getattr(flows, name) != getattr(current, name)]
        looser = (name for name in changed if replace(current, **{name: getattr(flows, name)}).loosens(current))
        draft.errors.setdefault(next(looser, changed[0]), str(_STRICTER_ONLY))

    async def reply_with_checks(
        self, record: ServerRecord, change: ServerChange, *, verify: bool
    ) -> AsyncIterator[Reply]:
        """Yield the exact saved definition, and the result of the checks."""
        facts = self.exact_definition(record)
        if not verify:
            yield Reply(change.text(server_label(record.config)), details=facts)
            return
        async for reply in verify_server(self._dependencies.servers, self._sign_in_steps, record.config, change):
            yield replace(reply, details=(*facts, *reply.details))

    def exact_definition(self, record: ServerRecord) -> tuple[tuple[str, str], ...]:
        """Return the exact address or command line, with separated words."""
        return known_facts(*endpoint_facts(expand_template(record.config, self._dependencies.operator.templates())))


def _is_typed_program(transport: Transport) -> bool:
    return isinstance(transport, StdioTransport) and transport.launch is None
