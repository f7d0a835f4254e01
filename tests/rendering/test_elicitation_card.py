"""The card of an elicitation."""

from __future__ import annotations

import pytest

from bot.domain.commands import ActionStyle
from bot.domain.elicitations import Elicitation, ElicitationAction, ElicitationResult
from bot.domain.turns import StepStatus, TurnStatus
from bot.rendering.elicitation_card import LIKE_ANOTHER, NO_SECRETS, NOT_NEEDED, ElicitationCard, elicitation_card
from tests.rendering.turns import a_form, a_link, a_step, a_view


def the_card(elicitation: Elicitation, status: StepStatus = StepStatus.ASKING) -> ElicitationCard:
    step = a_step(status, elicitations=(elicitation,))
    return elicitation_card(step, elicitation, a_view(step))


def test_a_waiting_form_names_its_server_and_the_requested_values() -> None:
    properties = {"title": {"type": "string", "title": "Title"}, "due": {"type": "string", "format": "date"}}
    made = the_card(a_form(message="What is it\ncalled?", properties=properties))
    assert (made.title, made.server, made.tool) == ("notes asks for an answer", "notes", "add_note")
    assert (made.message, made.fields) == ("What is it\ncalled?", ("Title", "due"))
    assert (made.domain, made.warning, made.outcome, made.expires_in) == ("", "", "", 1800)
    assert [(offer.label, offer.words, offer.tone) for offer in made.offers] == [
        ("Answer…", ("answer-server", "eli-12345678"), ActionStyle.PRIMARY),
        ("Decline", ("decline-server", "eli-12345678"), ActionStyle.PLAIN),
    ]


def test_a_link_that_waits_says_where_it_leads_and_not_its_address() -> None:
    made = the_card(a_link(url="https://jira.example.com:8443/consent?ticket=k3y", message="Please say that we may."))
    assert (made.title, made.domain, made.fields) == ("notes wants a page visited", "jira.example.com:8443", ())
    assert [(offer.label, offer.words) for offer in made.offers] == [
        ("Show the link…", ("visit-server", "eli-12345678")),
        ("Decline", ("decline-server", "eli-12345678")),
    ]
    assert "consent" not in str(made)
    assert "k3y" not in str(made)


@pytest.mark.parametrize(
    "url", ["https://xn--pple-43d.com/", "https://\u0430pple.com/", "https://login.xn--pple-43d.com"]
)
def test_a_domain_in_letters_that_look_like_others_has_a_warning(url: str) -> None:
    assert the_card(a_link(url=url)).warning == LIKE_ANOTHER


def test_a_form_that_speaks_of_a_secret_has_a_warning() -> None:
    assert the_card(a_form(message="Type your password.")).warning == NO_SECRETS
    field = {"type": "string", "description": "The code of six digits: your one-time code"}
    assert the_card(a_form(message="Go on?", properties={"answer": field})).warning == NO_SECRETS


def test_a_long_message_is_cut_and_hidden_characters_in_it_are_gone() -> None:
    made = the_card(a_form(message="\u202e\x1b[31mred\x1b[0m " + "x" * 1000))
    assert made.message.startswith("red x")
    assert made.message.endswith("x…")
    assert len(made.message) <= 301
    assert the_card(a_form(message="a\n" * 50)).message.count("\n") < 6


def test_a_form_of_many_fields_names_the_first_of_them() -> None:
    made = the_card(a_form(properties={f"field {n}": {"type": "string"} for n in range(14)}))
    assert (made.fields[0], made.fields[-1], len(made.fields)) == ("field 0", "4 more", 11)


@pytest.mark.parametrize(
    ("elicitation", "outcome"),
    [
        (a_form(reply=ElicitationResult(ElicitationAction.CANCEL), answered_by="Ana"), "Left unanswered by Ana"),
        (
            a_form(reply=ElicitationResult(ElicitationAction.CANCEL), reason="Slack is away."),
            "Withdrawn: Slack is away",
        ),
        (a_form(reply=ElicitationResult(ElicitationAction.CANCEL)), NOT_NEEDED),
    ],
)
def test_a_settled_question_says_how_it_ended_and_offers_nothing(elicitation: Elicitation, outcome: str) -> None:
    made = the_card(elicitation, StepStatus.DONE)
    assert (made.outcome, made.offers) == (outcome, ())


def test_a_question_of_an_ended_turn_does_not_wait() -> None:
    elicitation = a_form()
    step = a_step(StepStatus.ASKING, elicitations=(elicitation,))
    made = elicitation_card(step, elicitation, a_view(step, status=TurnStatus.CANCELLED))
    assert (made.outcome, made.offers) == (NOT_NEEDED, ())
