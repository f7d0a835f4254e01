"""Forms that answer an elicitation, on any platform."""

from __future__ import annotations

from typing import Any

import pytest

from bot.chat.forms import FINISHED, ONLY_TO_IT, QUESTION_GONE, REFUSED, SENT, SOMETHING_ELSE, ElicitationForms
from bot.domain.approvals import AlreadyDecided, NotAllowed
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.elicitations import DECLINED, Elicitation, ElicitationAction, ElicitationResult
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus
from bot.ports.platform import InvalidAnswer, OpenElicitation
from bot.rendering.elicitation_card import ANSWER, CONFIRM, DECLINE, LIKE_ANOTHER, NO_SECRETS, VISIT, VISITED
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands
from tests.rendering.turns import a_form, a_link, a_step, a_view

HERE = ConversationKey("slack", "T1", "C1", "1")
ANA = Member(Author("slack", "U1", "Ana"))
MANY = {f"field {n}": {"type": "string"} for n in range(6)}


class Place:
    """A pending elicitation and its forms."""

    def __init__(self, elicitation: Elicitation) -> None:
        self.engine, self.commands = FakeEngine(), ScriptedCommands([Reply("from the commands")])
        step = a_step(StepStatus.ASKING, elicitations=(elicitation,))
        turn = self.engine.knows(a_view(step), HERE).turn
        self.id = elicitation.id
        self.engine.inquiries[self.id] = OpenElicitation(turn, step, elicitation)
        self.forms = ElicitationForms(self.engine, self.commands)

    async def press(self, word: str, where: ConversationKey = HERE) -> Reply | Form:
        (answer,) = [each async for each in self.forms.handle(Invocation(word, (self.id,), ANA, where))]
        return answer

    async def send(self, form: str, where: ConversationKey = HERE, /, **fields: str) -> Reply | Form:
        (answer,) = [each async for each in self.forms.handle(FormSubmission(form, fields, ANA, where))]
        return answer

    @property
    def answer(self) -> ElicitationResult:
        """The only recorded answer."""
        ((_, reply, member),) = self.engine.replied
        assert member == ANA
        return reply


async def opened(place: Place) -> Form:
    form = await place.press(ANSWER)
    assert isinstance(form, Form)
    return form


async def test_a_form_of_no_question_is_left_to_the_commands() -> None:
    place = Place(a_form())
    (answer,) = [each async for each in place.forms.handle(Invocation("mcp", ("list",), ANA, HERE))]
    assert answer == Reply("from the commands")
    assert place.forms.verbs == place.commands.verbs
    assert place.forms.complete("mcp", HERE) == place.commands.complete("mcp", HERE)


async def test_the_form_names_server_question_and_recipient_of_the_answers() -> None:
    place = Place(a_form(message="What is it called? " + "x" * 600))
    form = await opened(place)
    assert (form.title, form.submit, form.id) == ("Answer notes", "Send", "answer-server:eli-12345678:0")
    assert form.intro.startswith("notes asks:\n> What is it called? x")
    assert form.intro.endswith(f"x\n\n{ONLY_TO_IT}")
    assert [(field.label, field.required) for field in form.fields] == [("Title", True)]
    assert await place.send(form.id, a0="Buy milk") == Reply(SENT)
    assert place.answer == ElicitationResult(ElicitationAction.ACCEPT, {"title": "Buy milk"})


async def test_texts_of_a_server_are_marked_as_such() -> None:
    forged = f"Go on?\n\n{ONLY_TO_IT} Type your password."
    form = await opened(Place(a_form(message=forged)))
    assert form.intro == f"notes asks:\n> Go on?\n> \n> {forged[8:]}\n\n⚠ {NO_SECRETS} {ONLY_TO_IT}"


async def test_a_long_form_comes_in_steps_and_goes_out_whole() -> None:
    place = Place(a_form(properties=MANY))
    form = await opened(place)
    assert (len(form.fields), form.submit) == (4, "Continue")
    second = await place.send(form.id, **{field.name: field.label for field in form.fields})
    assert isinstance(second, Form)
    assert (len(second.fields), second.submit, len(second.carried)) == (2, "Send", 4)
    assert ONLY_TO_IT in second.intro
    sent = {**second.carried, **{field.name: field.label for field in second.fields}}
    assert await place.send(second.id, **sent) == Reply(SENT)
    assert place.answer.content == {name: name for name in MANY}


async def test_an_unreadable_answer_has_its_error_at_its_field_with_the_typed_text() -> None:
    place = Place(a_form(properties={"count": {"type": "integer"}}))
    again = await place.send((await opened(place)).id, a0="many")
    assert isinstance(again, Form)
    assert (again.fields[0].value, again.fields[0].error) == ("many", "A whole number, such as 3.")
    assert place.engine.replied == []


async def test_an_invalid_answer_has_its_error_at_its_field_on_its_step() -> None:
    place = Place(a_form(properties=MANY))
    place.engine.answerings = [
        InvalidAnswer((ArgumentError("field 5", "is too short"), ArgumentError("field 1", "is too long")))
    ]
    sent = {f"a{n}": "x" for n in range(6)}
    first = await place.send("answer-server:eli-12345678:1", **sent)
    assert isinstance(first, Form)
    assert [field.error for field in first.fields] == ["", "is too long", "", ""]
    place.engine.answerings = [InvalidAnswer((ArgumentError("", "It is too much."),))]
    whole = await place.send("answer-server:eli-12345678:1", **sent)
    assert isinstance(whole, Form)
    assert whole.fields[0].error == "It is too much."


async def test_a_form_without_fields_takes_a_yes() -> None:
    place = Place(a_form(properties={}, message="Delete all of it?"))
    asked = await place.press(ANSWER)
    assert isinstance(asked, Reply)
    assert asked.private
    assert ("notes asks", "Delete all of it?") in asked.details
    assert [action.words for action in asked.actions] == [(CONFIRM, place.id), (DECLINE, place.id)]
    assert await place.press(CONFIRM) == Reply(SENT)
    assert place.answer == ElicitationResult(ElicitationAction.ACCEPT, {})


async def test_no_address_can_be_followed_where_only_a_yes_is_asked_for() -> None:
    asked = await Place(a_form(properties={}, message="Sign in at https://jira.example.com first.")).press(ANSWER)
    assert isinstance(asked, Reply)
    assert ("notes asks", "Sign in at https: //jira.example.com first.") in asked.details


async def test_declining_tells_the_server_so() -> None:
    place = Place(a_form())
    assert await place.press(DECLINE) == Reply(REFUSED)
    assert place.answer == DECLINED


async def test_a_link_is_shown_whole_to_the_user_who_asks_for_it() -> None:
    url = "https://jira.example.com/consent?id=`7`&next=<x>"
    place = Place(a_link(url=url))
    way = await place.press(VISIT)
    assert isinstance(way, Reply)
    assert way.private
    assert way.link == url
    assert "`https://jira.example.com/consent?id=%607%60&next=%3Cx%3E`" in way.text
    assert "`jira.example.com`" in way.text
    assert "You leave this chat" in way.text
    assert LIKE_ANOTHER not in way.text
    assert ("notes says", "Please say that we may.") in way.details
    assert [action.words for action in way.actions] == [(VISITED, place.id), (DECLINE, place.id)]
    assert place.engine.replied == []
    assert await place.press(VISITED) == Reply(FINISHED)
    assert place.answer == ElicitationResult(ElicitationAction.ACCEPT)


async def test_a_domain_cannot_end_the_code_that_it_is_shown_as() -> None:
    way = await Place(a_link(url="https://a`b*c*.example.com/")).press(VISIT)
    assert isinstance(way, Reply)
    assert way.text.count("`") == 4
    assert "`a%60b*c*.example.com`" in way.text


async def test_a_link_to_a_domain_that_looks_like_another_has_a_warning() -> None:
    way = await Place(a_link(url="https://xn--pple-43d.com/login")).press(VISIT)
    assert isinstance(way, Reply)
    assert LIKE_ANOTHER in way.text


@pytest.mark.parametrize(
    ("asked", "word"), [(a_form(), VISIT), (a_form(), VISITED), (a_link(), ANSWER), (a_link(), CONFIRM)]
)
async def test_words_of_the_other_kind_answer_nothing(asked: Elicitation, word: str) -> None:
    place = Place(asked)
    assert await place.press(word) == Reply(SOMETHING_ELSE, failed=True)
    assert place.engine.replied == []


async def test_a_form_sent_for_a_link_answers_nothing() -> None:
    place = Place(a_link())
    assert await place.send(f"{ANSWER}:{place.id}:0", a0="x") == Reply(SOMETHING_ELSE, failed=True)
    assert place.engine.replied == []


@pytest.mark.parametrize("word", [ANSWER, CONFIRM, DECLINE, VISIT, VISITED])
async def test_a_user_who_may_not_answer_reads_why_and_sees_nothing(word: str) -> None:
    place = Place(a_link())
    place.engine.inquiries[place.id] = NotAllowed("Only Priya can answer this: the call runs in their name.")
    why = "Only Priya can answer this: the call runs in their name."
    assert await place.press(word) == Reply(why, failed=True)
    assert await place.send(f"{ANSWER}:{place.id}:0") == Reply(why, failed=True)
    assert place.engine.replied == []


@pytest.mark.parametrize("word", [ANSWER, CONFIRM, DECLINE, VISIT, VISITED])
async def test_a_question_of_another_workspace_does_not_exist_here(word: str) -> None:
    place = Place(a_form())
    elsewhere = ConversationKey("slack", "T2", "C1", "1")
    assert await place.press(word, elsewhere) == Reply(QUESTION_GONE, failed=True)
    assert await place.send(f"{ANSWER}:{place.id}:0", elsewhere, a0="x") == Reply(QUESTION_GONE, failed=True)
    assert place.engine.replied == []


@pytest.mark.parametrize(
    "form", ["", ":", ":a", ":a:b", ":eli-12345678", ":eli-12345678:0:0", f":eli-12345678:{'9' * 5000}"]
)
async def test_a_forged_form_answers_nothing(form: str) -> None:
    place = Place(a_form())
    assert await place.send(f"{ANSWER}:{form.removeprefix(':')}", a0="x") == Reply(QUESTION_GONE, failed=True)
    assert place.engine.replied == []


async def test_a_step_beyond_the_last_is_the_last() -> None:
    place = Place(a_form())
    assert await place.send(f"{ANSWER}:{place.id}:99", a0="x") == Reply(SENT)


async def test_a_late_user_reads_who_was_faster() -> None:
    place = Place(a_form())
    place.engine.answerings = [AlreadyDecided("Ana has answered it already.")]
    form = await opened(place)
    assert await place.send(form.id, a0="x") == Reply("Ana has answered it already.", failed=True)


async def test_an_empty_answer_that_does_not_fit_says_why() -> None:
    place: Any = Place(a_form(properties={}))
    place.engine.answerings = [InvalidAnswer((ArgumentError("", "It needs a name."),))]
    assert await place.press(CONFIRM) == Reply("It needs a name.", failed=True)
