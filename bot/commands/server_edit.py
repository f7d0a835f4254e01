"""`/mcp edit`: by options, or by a form in steps with the current values. Of concurrent changes the first is saved, and
the other is rejected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from bot.commands.command import CommandContext, SubmissionContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.secret_links import SecretLinks, awaited, missing_slots
from bot.commands.server_definition import ParsedDefinition, command_line
from bot.commands.server_directory import ServerDirectory
from bot.commands.server_forms import Step, form, steps_of_editing
from bot.commands.server_options import (
    EDIT,
    all_wrong,
    argv_given,
    fields_given,
    next_step,
    on_form,
    split,
    step_number,
    unconfirmed,
    values_of,
)
from bot.commands.server_secrets import secret_form
from bot.commands.server_service import InvalidServer, ServerService, VersionConflict
from bot.commands.server_templates import is_confirming, launch_of, seen, steps_of_refilling, unseen
from bot.commands.server_validation import ServerRequest, ServerValidator, starts
from bot.commands.text_format import format_ago, server_label
from bot.domain.commands import Form, Reply, ReplyAction
from bot.domain.servers import ServerEnablement, ServerRecord

_INSTEAD = "/mcp edit NAME --OPTION VALUE; /mcp help edit lists the options"


class ServerEdit:
    """Verb of `/mcp edit`."""

    def __init__(
        self, parts: CommandDependencies, directory: ServerDirectory, drafting: ServerValidator, keeping: ServerService
    ) -> None:
        self._clock = parts.clock
        self._templates = parts.templates
        self._links = SecretLinks(parts)
        self._directory = directory
        self._drafting = drafting
        self._keeping = keeping

    @property
    def handler(self) -> VerbHandler:
        """Return the verb."""
        return VerbHandler(EDIT, self._edit, self._editing)

    async def _edit(self, request: CommandContext) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        _, record = await self._directory.get_editable(arguments.one("server"), request)
        self._drafting.may_define(record.config, request.member)
        if set(arguments.values) <= {"server"}:
            yield self._form(record, values_of(record), {}, 1)
            return
        fields = fields_given(arguments)
        if arguments.given("rename"):
            fields["name"] = arguments.one("rename")
        server_request = ServerRequest(fields, request.member, request.conversation, argv=argv_given(arguments))
        draft = await self._drafting.changed(record, server_request)
        draft = draft if request.hidden_input else self._links.ready(draft)
        if (
            self._starts_other(record, draft.record)
            and not draft.errors
            and not self._drafting.operates(request.member)
        ):
            yield self._consent(record, {**values_of(record), **fields}, draft.record)
            return
        async for reply in self._keep(record, draft, request, verify=not arguments.given("no-verify")):
            yield reply

    async def _editing(self, filled: SubmissionContext) -> AsyncIterator[Reply | Form]:
        server_id, version, *_ = (*filled.state, "", "")
        seen = await self._directory.find(server_id, filled.conversation)
        record = self._directory.record_of(seen, filled.member)
        self._drafting.may_define(record.config, filled.member)
        if str(record.version) != version:
            yield self._overtaken(record)
            return
        before = values_of(record)
        fields, number = {**before, **filled.fields}, step_number(filled)
        steps = self._steps(record, fields)
        draft = await self._drafting.changed(record, ServerRequest(split(fields), filled.member, filled.conversation))
        draft = draft if filled.hidden_input else self._links.ready(draft)
        errors = {**on_form(draft.errors), **filled.errors}
        confirming, launched = is_confirming(steps), launch_of(record) is not None
        if number == len(steps) and confirming:
            errors |= unconfirmed(fields, record.config.name)
            errors |= unseen(fields, draft.record) if launched else {}
        step = next_step(steps, number, errors)
        if step == len(steps) and confirming and launched:
            yield self._consent(record, fields, draft.record, errors)
            return
        if step is not None:
            intro = starts(draft.record.config) if confirming and step == len(steps) else ""
            yield self._form(record, fields, errors, step, intro=intro)
            return
        async for reply in self._keep(record, draft, filled, verify=True):
            yield reply

    async def _keep(
        self, before: ServerRecord, draft: ParsedDefinition, asked: CommandContext | SubmissionContext, *, verify: bool
    ) -> AsyncIterator[Reply | Form]:
        kept = await self._keeping.change(before, draft, asked.author)
        match kept:
            case InvalidServer(errors):
                yield all_wrong("Nothing was changed.", errors, "edit")
                return
            case VersionConflict(record):
                yield self._overtaken(record)
                return
        if not kept.changes:
            yield Reply(f"{server_label(before.config)} is as it was: nothing is different.")
            return
        record = kept.record
        changes = tuple((f"changed {name}", said) for name, said in kept.changes.items())
        if record.missing - before.missing and asked.hidden_input:
            slot = missing_slots(record)[0]
            cleared = kept.changes.get(f"secret {slot}", "")
            yield secret_form(record, slot, intro=f"{server_label(record.config)} is changed. Secret {slot} {cleared}.")
            return
        if record.missing - before.missing:
            said = f"{server_label(record.config)} is changed, and waits for {awaited(record)}."
            reply = await self._links.asked(record, asked.author, asked.conversation, said)
            yield replace(reply, details=(*changes, *reply.details))
            return
        look = verify and record.standing is ServerEnablement.ON
        async for reply in self._drafting.reply_with_checks(record, "changed", verify=look):
            yield replace(reply, details=(*changes, *reply.details))

    def _overtaken(self, record: ServerRecord) -> Reply:
        """Return the reply to a version conflict: the last editor, and the current values."""
        when = format_ago(record.updated_at, self._clock())
        return Reply(
            f"{server_label(record.config)} has been changed since you opened it. Nothing was saved.",
            details=(("changed", f"{when} by {record.updated_by or 'somebody else'}"), *self._drafting.exactly(record)),
            failed=True,
            actions=(ReplyAction("Edit again", ("mcp", "edit", record.config.name)),),
        )

    def _steps(self, record: ServerRecord, fields: Mapping[str, str]) -> list[Step]:
        launch, before = launch_of(record), values_of(record)
        if launch is None:
            return steps_of_editing(fields, before)
        return steps_of_refilling(launch, fields, before, self._templates())

    def _starts_other(self, before: ServerRecord, after: ServerRecord) -> bool:
        """Return True if the command line from a launch template changes."""
        return launch_of(before) is not None and command_line(before.config) != command_line(after.config)

    def _consent(
        self,
        record: ServerRecord,
        fields: Mapping[str, str],
        after: ServerRecord,
        errors: Mapping[str, str] | None = None,
    ) -> Form:
        """Return the last step: the exact command line, and a field to confirm the name."""
        fields = {**fields, **seen(after)}
        return self._form(record, fields, errors or {}, len(self._steps(record, fields)), intro=starts(after.config))

    def _form(
        self, record: ServerRecord, fields: Mapping[str, str], errors: Mapping[str, str], step: int, intro: str = ""
    ) -> Form:
        return form(
            f"mcp edit:{record.id}:{record.version}",
            f"Edit {record.config.name}",
            self._steps(record, fields),
            step,
            values=fields,
            errors=errors,
            submit="Save and verify",
            intro=intro,
            instead=_INSTEAD,
        )
