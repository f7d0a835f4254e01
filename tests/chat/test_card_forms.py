"""Forms of cards, on any platform: arguments of a call that waits, and answers to an elicitation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.chat.actions import GONE, OUT_OF_DATE, ApprovalRef
from bot.chat.forms import (
    COMMAND,
    DONE,
    FINISHED,
    NOTHING_TO_EDIT,
    ONLY_TO_IT,
    QUESTION_GONE,
    REFUSED,
    SENT,
    SOMETHING_ELSE,
    TYPE_AGAIN,
    CardForms,
    edit_command,
)
from bot.domain.approvals import AlreadyDecided, NotAllowed
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.elicitations import DECLINED, Elicitation, ElicitationAction, ElicitationResult
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus
from bot.ports.platform import InvalidValues, OpenElicitation
from bot.rendering.elicitation_card import ANSWER, CONFIRM, DECLINE, LIKE_ANOTHER, NO_SECRETS, VISIT, VISITED
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands
from tests.rendering.turns import NOTES, a_form, a_link, a_step, a_view, an_approval

HERE = ConversationKey("slack", "T1", "C1", "1")
ELSEWHERE = ConversationKey("slack", "T2", "C1", "1")
ANA = Member(Author("slack", "U1", "Ana"))
CARD = ApprovalRef("apr-12345678", 1)
EDITING = f"{COMMAND}:{CARD.approval_id}"
SCHEMA = {"properties": {"text": {"type": "string"}, "api_key": {"type": "string"}}, "required": ["text"]}
MANY = {f"field {n}": {"type": "string"} for n in range(6)}


class Card:
    """The forms of a card."""

    def __init__(self) -> None:
        self.engine, self.commands = FakeEngine(), ScriptedCommands([Reply("from the commands")])
        self.forms = CardForms(self.engine, self.commands)

    async def run(self, *words: str, where: ConversationKey = HERE) -> Reply | Form:
        (answer,) = [each async for each in self.forms.handle(Invocation(words[0], words[1:], ANA, where))]
        return answer

    async def send(self, form: str, where: ConversationKey = HERE, /, **fields: str) -> Reply | Form:
        (answer,) = [each async for each in self.forms.handle(FormSubmission(form, fields, ANA, where))]
        return answer


class PendingCall(Card):
    """A call that waits for an approval."""

    def __init__(self, arguments: dict[str, Any] | None = None, schema: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.engine.schema = SCHEMA if schema is None else schema
        tool = dataclasses.replace(NOTES, server_id="s-1")
        arguments = {"text": "Buy milk"} if arguments is None else arguments
        step = a_step(StepStatus.AWAITING, approval=an_approval(), tool=tool, arguments=arguments)
        self.engine.knows(a_view(step), HERE)

    async def open(self, where: ConversationKey = HERE) -> Reply | Form:
        return await self.run(*edit_command(CARD), where=where)


class PendingElicitation(Card):
    """An elicitation that waits for an answer."""

    def __init__(self, elicitation: Elicitation) -> None:
        super().__init__()
        step = a_step(StepStatus.ASKING, elicitations=(elicitation,))
        turn = self.engine.knows(a_view(step), HERE).turn
        self.id = elicitation.id
        self.engine.inquiries[self.id] = OpenElicitation(turn, step, elicitation)

    async def press(self, word: str, where: ConversationKey = HERE) -> Reply | Form:
        return await self.run(word, self.id, where=where)

    @property
    def answer(self) -> ElicitationResult:
        """The only recorded answer."""
        ((_, reply, member),) = self.engine.replied
        assert member == ANA
        return reply


async def open_form(question: PendingElicitation) -> Form:
    form = await question.press(ANSWER)
    assert isinstance(form, Form)
    return form


async def test_a_form_of_no_card_is_left_to_the_commands() -> None:
    question = PendingElicitation(a_form())
    assert await question.run("mcp", "list") == Reply("from the commands")
    assert question.forms.verbs == question.commands.verbs
    assert question.forms.complete("mcp", HERE) == question.commands.complete("mcp", HERE)


async def test_the_form_names_server_question_and_recipient_of_the_answers() -> None:
    question = PendingElicitation(a_form(message="What is it called? " + "x" * 600))
    form = await open_form(question)
    assert (form.title, form.submit, form.id) == ("Answer notes", "Send", "answer-server:eli-12345678:0")
    assert form.intro.startswith("notes asks:\n> What is it called? x")
    assert form.intro.endswith(f"x\n\n{ONLY_TO_IT}")
    assert [(field.label, field.required) for field in form.fields] == [("Title", True)]
    assert await question.send(form.id, a0="Buy milk") == Reply(SENT)
    assert question.answer == ElicitationResult(ElicitationAction.ACCEPT, {"title": "Buy milk"})


async def test_texts_of_a_server_are_marked_as_such() -> None:
    forged = f"Go on?\n\n{ONLY_TO_IT} Type your password."
    form = await open_form(PendingElicitation(a_form(message=forged)))
    assert form.intro == f"notes asks:\n> Go on?\n> \n> {forged[8:]}\n\n⚠ {NO_SECRETS} {ONLY_TO_IT}"


async def test_a_long_form_comes_in_steps_and_goes_out_whole() -> None:
    question = PendingElicitation(a_form(properties=MANY))
    form = await open_form(question)
    assert (len(form.fields), form.submit) == (4, "Continue")
    second = await question.send(form.id, **{field.name: field.label for field in form.fields})
    assert isinstance(second, Form)
    assert (len(second.fields), second.submit, len(second.carried)) == (2, "Send", 4)
    assert ONLY_TO_IT in second.intro
    sent = {**second.carried, **{field.name: field.label for field in second.fields}}
    assert await question.send(second.id, **sent) == Reply(SENT)
    assert question.answer.content == {name: name for name in MANY}


async def test_an_unreadable_answer_has_its_error_at_its_field_with_the_typed_text() -> None:
    question = PendingElicitation(a_form(properties={"count": {"type": "integer"}}))
    again = await question.send((await open_form(question)).id, a0="many")
    assert isinstance(again, Form)
    assert (again.fields[0].value, again.fields[0].error) == ("many", "A whole number, such as 3.")
    assert question.engine.replied == []


async def test_an_invalid_answer_has_its_error_at_its_field_on_its_step() -> None:
    question = PendingElicitation(a_form(properties=MANY))
    question.engine.answerings = [
        InvalidValues((ArgumentError("field 5", "is too short"), ArgumentError("field 1", "is too long")))
    ]
    sent = {f"a{n}": "x" for n in range(6)}
    first = await question.send("answer-server:eli-12345678:1", **sent)
    assert isinstance(first, Form)
    assert [field.error for field in first.fields] == ["", "is too long", "", ""]
    question.engine.answerings = [InvalidValues((ArgumentError("", "It is too much."),))]
    whole = await question.send("answer-server:eli-12345678:1", **sent)
    assert isinstance(whole, Form)
    assert whole.fields[0].error == "It is too much."


async def test_a_form_without_fields_takes_a_yes() -> None:
    question = PendingElicitation(a_form(properties={}, message="Delete all of it?"))
    asked = await question.press(ANSWER)
    assert isinstance(asked, Reply)
    assert asked.private
    assert ("notes asks", "Delete all of it?") in asked.details
    assert [action.words for action in asked.actions] == [(CONFIRM, question.id), (DECLINE, question.id)]
    assert await question.press(CONFIRM) == Reply(SENT)
    assert question.answer == ElicitationResult(ElicitationAction.ACCEPT, {})


async def test_no_address_can_be_followed_where_only_a_yes_is_asked_for() -> None:
    asked = await PendingElicitation(a_form(properties={}, message="Sign in at https://jira.example.com first.")).press(
        ANSWER
    )
    assert isinstance(asked, Reply)
    assert ("notes asks", "Sign in at https: //jira.example.com first.") in asked.details


async def test_declining_tells_the_server_so() -> None:
    question = PendingElicitation(a_form())
    assert await question.press(DECLINE) == Reply(REFUSED)
    assert question.answer == DECLINED


async def test_a_link_is_shown_whole_to_the_user_who_asks_for_it() -> None:
    url = "https://jira.example.com/consent?id=`7`&next=<x>"
    question = PendingElicitation(a_link(url=url))
    way = await question.press(VISIT)
    assert isinstance(way, Reply)
    assert way.private
    assert way.link == url
    assert "`https://jira.example.com/consent?id=%607%60&next=%3Cx%3E`" in way.text
    assert "`jira.example.com`" in way.text
    assert "You leave this chat" in way.text
    assert LIKE_ANOTHER not in way.text
    assert ("notes says", "Please say that we may.") in way.details
    assert [action.words for action in way.actions] == [(VISITED, question.id), (DECLINE, question.id)]
    assert question.engine.replied == []
    assert await question.press(VISITED) == Reply(FINISHED)
    assert question.answer == ElicitationResult(ElicitationAction.ACCEPT)


async def test_a_domain_cannot_end_the_code_that_it_is_shown_as() -> None:
    way = await PendingElicitation(a_link(url="https://a`b*c*.example.com/")).press(VISIT)
    assert isinstance(way, Reply)
    assert way.text.count("`") == 4
    assert "`a%60b*c*.example.com`" in way.text


async def test_a_link_to_a_domain_that_looks_like_another_has_a_warning() -> None:
    way = await PendingElicitation(a_link(url="https://xn--pple-43d.com/login")).press(VISIT)
    assert isinstance(way, Reply)
    assert LIKE_ANOTHER in way.text


@pytest.mark.parametrize(
    ("asked", "word"), [(a_form(), VISIT), (a_form(), VISITED), (a_link(), ANSWER), (a_link(), CONFIRM)]
)
async def test_words_of_the_other_kind_answer_nothing(asked: Elicitation, word: str) -> None:
    question = PendingElicitation(asked)
    assert await question.press(word) == Reply(SOMETHING_ELSE, failed=True)
    assert question.engine.replied == []


async def test_a_form_sent_for_a_link_answers_nothing() -> None:
    question = PendingElicitation(a_link())
    assert await question.send(f"{ANSWER}:{question.id}:0", a0="x") == Reply(SOMETHING_ELSE, failed=True)
    assert question.engine.replied == []


@pytest.mark.parametrize("word", [ANSWER, CONFIRM, DECLINE, VISIT, VISITED])
async def test_a_user_who_may_not_answer_reads_why_and_sees_nothing(word: str) -> None:
    question = PendingElicitation(a_link())
    question.engine.inquiries[question.id] = NotAllowed("Only Priya can answer this: the call runs in their name.")
    why = "Only Priya can answer this: the call runs in their name."
    assert await question.press(word) == Reply(why, failed=True)
    assert await question.send(f"{ANSWER}:{question.id}:0") == Reply(why, failed=True)
    assert question.engine.replied == []


@pytest.mark.parametrize("word", [ANSWER, CONFIRM, DECLINE, VISIT, VISITED])
async def test_a_question_of_another_workspace_does_not_exist_here(word: str) -> None:
    question = PendingElicitation(a_form())
    assert await question.press(word, ELSEWHERE) == Reply(QUESTION_GONE, failed=True)
    assert await question.send(f"{ANSWER}:{question.id}:0", ELSEWHERE, a0="x") == Reply(QUESTION_GONE, failed=True)
    assert question.engine.replied == []


@pytest.mark.parametrize(
    "form", ["", ":", ":a", ":a:b", ":eli-12345678", ":eli-12345678:0:0", f":eli-12345678:{'9' * 5000}"]
)
async def test_a_forged_form_answers_nothing(form: str) -> None:
    question = PendingElicitation(a_form())
    assert await question.send(f"{ANSWER}:{form.removeprefix(':')}", a0="x") == Reply(QUESTION_GONE, failed=True)
    assert question.engine.replied == []


async def test_a_step_beyond_the_last_is_the_last() -> None:
    question = PendingElicitation(a_form())
    assert await question.send(f"{ANSWER}:{question.id}:99", a0="x") == Reply(SENT)


async def test_a_late_user_reads_who_was_faster() -> None:
    question = PendingElicitation(a_form())
    question.engine.answerings = [AlreadyDecided("Ana has answered it already.")]
    form = await open_form(question)
    assert await question.send(form.id, a0="x") == Reply("Ana has answered it already.", failed=True)


async def test_an_empty_answer_that_does_not_fit_says_why() -> None:
    question = PendingElicitation(a_form(properties={}))
    question.engine.answerings = [InvalidValues((ArgumentError("", "It needs a name."),))]
    assert await question.press(CONFIRM) == Reply("It needs a name.", failed=True)


async def test_a_call_of_another_workspace_does_not_exist_here() -> None:
    call = PendingCall()
    assert await call.open(ELSEWHERE) == Reply(GONE, failed=True)
    assert await call.send(f"{EDITING}:1:0", ELSEWHERE, a0="x") == Reply(GONE, failed=True)
    assert call.engine.revisions == []


@pytest.mark.parametrize(
    "form", ["", ":", ":a", ":a:b:c", ":apr-12345678:1", ":apr-12345678:1:0:0", f":x:{'9' * 5000}:0"]
)
async def test_a_forged_form_changes_nothing(form: str) -> None:
    call = PendingCall()
    assert await call.send(f"{COMMAND}:{form.removeprefix(':')}", a0="x") == Reply(GONE, failed=True)
    assert call.engine.revisions == []


async def test_a_form_of_an_older_version_of_the_call_changes_nothing() -> None:
    call = PendingCall()
    assert await call.send(f"{EDITING}:7:0", a0="x") == Reply(OUT_OF_DATE, failed=True)
    assert call.engine.revisions == []


async def test_unrequested_fields_are_ignored() -> None:
    call = PendingCall()
    assert await call.send(f"{EDITING}:1:0", a0="Buy bread", a99="x", text="y") == Reply(DONE)
    ((_, _, arguments, _),) = call.engine.revisions
    assert arguments == {"text": "Buy bread"}


async def test_a_secret_is_neither_shown_nor_sent_back_and_stays_as_it_was() -> None:
    call = PendingCall({"text": "Buy milk", "api_key": "very-secret"})
    form = await call.open()
    assert "very-secret" not in str(form)
    await call.send(f"{EDITING}:1:0", a0="Buy bread", a1="")
    assert call.engine.revisions[0][2] == {"text": "Buy bread", "api_key": "very-secret"}


async def test_a_secret_that_was_typed_is_not_shown_again_with_an_error() -> None:
    call = PendingCall({"text": "Buy milk", "api_key": "very-secret"})
    call.engine.editings = [
        InvalidValues(
            (ArgumentError("text", "text: 'x' is too short"), ArgumentError("api_key", "'hunter2' is too short"))
        )
    ]
    form = await call.send(f"{EDITING}:1:0", a0="x", a1="hunter2")
    assert isinstance(form, Form)
    text, key = form.fields
    assert (text.value, text.error) == ("x", "text: 'x' is too short")
    assert (key.value, key.error) == ("", "It does not fit the tool.")
    form = await call.send(f"{EDITING}:1:0", a0="", a1="hunter2")
    assert isinstance(form, Form)
    assert form.fields[1].error == TYPE_AGAIN
    assert "hunter2" not in str(form)


async def test_a_problem_with_all_of_it_stands_with_the_first_field() -> None:
    call = PendingCall()
    call.engine.editings = [InvalidValues((ArgumentError("", "A policy forbids this call with these arguments."),))]
    form = await call.send(f"{EDITING}:1:0", a0="Buy bread")
    assert isinstance(form, Form)
    assert form.fields[0].error == "A policy forbids this call with these arguments."


async def test_a_call_without_arguments_says_so() -> None:
    assert await PendingCall({}, {}).open() == Reply(NOTHING_TO_EDIT, failed=True)


async def test_arguments_without_a_field_are_named() -> None:
    form = await PendingCall({"text": "x" * 9000, "n": 1}, {}).open()
    assert isinstance(form, Form)
    assert form.intro.endswith("stays as it is: text.")
