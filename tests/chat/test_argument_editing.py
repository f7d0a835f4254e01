"""The argument form of a call, on any platform."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.chat.actions import GONE, OUT_OF_DATE, ApprovalRef
from bot.chat.forms import COMMAND, DONE, NOTHING_TO_EDIT, TYPE_AGAIN, ArgumentEditForms, edit_command
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus
from bot.ports.platform import InvalidArguments
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands
from tests.rendering.turns import NOTES, a_step, a_view, an_approval

HERE = ConversationKey("slack", "T1", "C1", "1")
SAM = Member(Author("slack", "U2", "Sam"))
CARD = ApprovalRef("apr-12345678", 1)
SCHEMA = {"properties": {"text": {"type": "string"}, "api_key": {"type": "string"}}, "required": ["text"]}


class Place:
    """A pending call and its forms."""

    def __init__(self, arguments: dict[str, Any] | None = None, schema: dict[str, Any] | None = None) -> None:
        self.engine, self.commands = FakeEngine(), ScriptedCommands([Reply("from the commands")])
        self.engine.schema = SCHEMA if schema is None else schema
        tool = dataclasses.replace(NOTES, server_id="s-1")
        arguments = {"text": "Buy milk"} if arguments is None else arguments
        step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=tool, arguments=arguments)
        self.engine.knows(a_view(step), HERE)
        self.forms = ArgumentEditForms(self.engine, self.commands)

    async def open(self, where: ConversationKey = HERE) -> Reply | Form:
        name, *words = edit_command(CARD)
        (answer,) = [each async for each in self.forms.handle(Invocation(name, tuple(words), SAM, where))]
        return answer

    async def send(self, form: str, where: ConversationKey = HERE, **fields: str) -> Reply | Form:
        (answer,) = [each async for each in self.forms.handle(FormSubmission(form, fields, SAM, where))]
        return answer


async def test_a_form_of_no_call_is_left_to_the_commands() -> None:
    place = Place()
    (answer,) = [each async for each in place.forms.handle(Invocation("mcp", ("list",), SAM, HERE))]
    assert answer == Reply("from the commands")
    assert place.forms.verbs == place.commands.verbs
    assert place.forms.complete("mcp", HERE) == place.commands.complete("mcp", HERE)


async def test_a_call_of_another_workspace_does_not_exist_here() -> None:
    place = Place()
    elsewhere = ConversationKey("slack", "T2", "C1", "1")
    assert await place.open(elsewhere) == Reply(GONE, failed=True)
    assert await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", elsewhere, a0="x") == Reply(GONE, failed=True)
    assert place.engine.revisions == []


@pytest.mark.parametrize(
    "form", ["", ":", ":a", ":a:b:c", ":apr-12345678:1", ":apr-12345678:1:0:0", f":x:{'9' * 5000}:0"]
)
async def test_a_forged_form_changes_nothing(form: str) -> None:
    place = Place()
    assert await place.send(f"{COMMAND}:{form.removeprefix(':')}", a0="x") == Reply(GONE, failed=True)
    assert place.engine.revisions == []


async def test_a_form_of_an_older_version_of_the_call_changes_nothing() -> None:
    place = Place()
    assert await place.send(f"{COMMAND}:{CARD.approval_id}:7:0", a0="x") == Reply(OUT_OF_DATE, failed=True)
    assert place.engine.revisions == []


async def test_unrequested_fields_are_ignored() -> None:
    place = Place()
    assert await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", a0="Buy bread", a99="x", text="y") == Reply(DONE)
    ((_, _, arguments, _),) = place.engine.revisions
    assert arguments == {"text": "Buy bread"}


async def test_a_secret_is_neither_shown_nor_sent_back_and_stays_as_it_was() -> None:
    place = Place({"text": "Buy milk", "api_key": "very-secret"})
    form = await place.open()
    assert "very-secret" not in str(form)
    await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", a0="Buy bread", a1="")
    assert place.engine.revisions[0][2] == {"text": "Buy bread", "api_key": "very-secret"}


async def test_a_secret_that_was_typed_is_not_shown_again_with_an_error() -> None:
    place = Place({"text": "Buy milk", "api_key": "very-secret"})
    place.engine.editings = [
        InvalidArguments(
            (ArgumentError("text", "text: 'x' is too short"), ArgumentError("api_key", "'hunter2' is too short"))
        )
    ]
    form = await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", a0="x", a1="hunter2")
    assert isinstance(form, Form)
    text, key = form.fields
    assert (text.value, text.error) == ("x", "text: 'x' is too short")
    assert (key.value, key.error) == ("", "It does not fit the tool.")
    form = await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", a0="", a1="hunter2")
    assert isinstance(form, Form)
    assert form.fields[1].error == TYPE_AGAIN
    assert "hunter2" not in str(form)


async def test_a_problem_with_all_of_it_stands_with_the_first_field() -> None:
    place = Place()
    place.engine.editings = [InvalidArguments((ArgumentError("", "A policy forbids this call with these arguments."),))]
    form = await place.send(f"{COMMAND}:{CARD.approval_id}:1:0", a0="Buy bread")
    assert isinstance(form, Form)
    assert form.fields[0].error == "A policy forbids this call with these arguments."


async def test_a_call_without_arguments_says_so() -> None:
    assert await Place({}, {}).open() == Reply(NOTHING_TO_EDIT, failed=True)


async def test_arguments_without_a_field_are_named() -> None:
    form = await Place({"text": "x" * 9000, "n": 1}, {}).open()
    assert isinstance(form, Form)
    assert form.intro.endswith("stays as it is: text.")
