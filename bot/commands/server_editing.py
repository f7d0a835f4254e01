"""`/mcp edit`: by options at once, or by a form in steps that shows what there is. Whoever was faster wins, and the
other is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from bot.commands.command import Deed, Filled, Request
from bot.commands.definitions import Drafted, differences, drafted
from bot.commands.directory import Directory
from bot.commands.parts import CommandParts
from bot.commands.phrases import ago, named
from bot.commands.server_drafting import ServerDrafting, exactly, starts
from bot.commands.server_forms import form, steps_of_editing
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
from bot.domain.commands import Action, Form, Reply
from bot.domain.conversations import Author
from bot.domain.servers import ServerRecord, Standing
from bot.errors import Conflict

_INSTEAD = "/mcp edit NAME --OPTION VALUE; /mcp help edit lists the options"


class ServerEditing:
    """Changes servers."""

    def __init__(self, parts: CommandParts, directory: Directory, drafting: ServerDrafting) -> None:
        self._parts = parts
        self._directory = directory
        self._drafting = drafting

    @property
    def deed(self) -> Deed:
        """The verb."""
        return Deed(EDIT, self._edit, self._editing)

    async def _edit(self, request: Request) -> AsyncIterator[Reply | Form]:
        arguments = request.arguments
        _, record = await self._directory.changeable(arguments.one("server"), request)
        self._drafting.may_define(record.config, request.member)
        if set(arguments.values) <= {"server"}:
            yield _form(record, values_of(record), {}, 1)
            return
        fields = fields_given(arguments)
        if arguments.given("rename"):
            fields["name"] = arguments.one("rename")
        draft = drafted(record, fields, argv=argv_given(arguments))
        await self._drafting.judge(draft, request.member, request.conversation)
        self._drafting.judge_change(record, draft, request.member)
        if draft.errors:
            yield all_wrong("Nothing was changed.", draft.errors, "edit")
            return
        async for reply in self._keep(record, draft, request.author, verify=not arguments.given("no-verify")):
            yield reply

    async def _editing(self, filled: Filled) -> AsyncIterator[Reply | Form]:
        server_id, version, *_ = (*filled.state, "", "")
        seen = await self._directory.find(server_id, filled.conversation)
        record = self._directory.record_of(seen, operates=self._drafting.operates(filled.member))
        self._drafting.may_define(record.config, filled.member)
        if str(record.version) != version:
            yield self._overtaken(record)
            return
        before = values_of(record)
        fields, number = {**before, **filled.fields}, step_number(filled)
        steps = steps_of_editing(fields, before)
        draft = drafted(record, split(fields))
        await self._drafting.judge(draft, filled.member, filled.conversation)
        self._drafting.judge_change(record, draft, filled.member)
        errors = {**on_form(draft.errors), **filled.errors}
        confirming = steps[-1][0].name == "confirm"
        if number == len(steps) and confirming:
            errors |= unconfirmed(fields, record.config.name)
        step = next_step(steps, number, errors)
        if step is not None:
            intro = starts(draft.record.config) if confirming and step == len(steps) else ""
            yield _form(record, fields, errors, step, intro=intro)
            return
        async for reply in self._keep(record, draft, filled.author, verify=True):
            yield reply

    async def _keep(
        self, before: ServerRecord, draft: Drafted, by: Author, *, verify: bool
    ) -> AsyncIterator[Reply | Form]:
        changes = differences(before, draft.record)
        if not changes:
            yield Reply(f"{named(before.config)} is as it was: nothing is different.")
            return
        try:
            record = await self._parts.server_store.change(draft.record, draft.secrets, by, changes=changes)
        except Conflict as conflict:
            if conflict.field:
                yield all_wrong("Nothing was changed.", {conflict.field: str(conflict)}, "edit")
            else:
                yield self._overtaken(await self._present(before))
            return
        await self._parts.administration.refresh()
        told = tuple((f"changed {name}", said) for name, said in changes.items())
        look = verify and record.standing is Standing.ON
        async for reply in self._drafting.looked_at(record, "changed", verify=look):
            yield replace(reply, details=(*told, *reply.details))

    async def _present(self, record: ServerRecord) -> ServerRecord:
        """The record as it is now."""
        records = await self._parts.server_store.records()
        return next((each for each in records if each.id == record.id), record)

    def _overtaken(self, record: ServerRecord) -> Reply:
        """Somebody was faster: who, and how it stands now."""
        when = ago(record.updated_at, self._parts.clock())
        return Reply(
            f"{named(record.config)} has been changed since you opened it. Nothing was saved.",
            details=(("changed", f"{when} by {record.updated_by or 'somebody else'}"), *exactly(record.config)),
            failed=True,
            actions=(Action("Edit again", ("mcp", "edit", record.config.name)),),
        )


def _form(
    record: ServerRecord, fields: Mapping[str, str], errors: Mapping[str, str], step: int, intro: str = ""
) -> Form:
    return form(
        f"mcp edit:{record.id}:{record.version}",
        f"Edit {record.config.name}",
        steps_of_editing(fields, values_of(record)),
        step,
        values=fields,
        errors=errors,
        submit="Save and verify",
        intro=intro,
        instead=_INSTEAD,
    )
