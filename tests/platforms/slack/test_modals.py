"""Modals: complete calls, reasons, confirmations, forms, and their submitted values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import ApprovalRef, Approve, OpenConfirmation, OpenDenyForm, RunCommand, ViewCall
from bot.chat.forms import REASON, TYPED, DenialSubmitted, FormSubmitted
from bot.domain.commands import Field, FieldKind, Form
from bot.domain.turns import StepStatus
from bot.platforms.slack.blocks import decode
from bot.platforms.slack.modals import (
    FIELD,
    TOO_LONG,
    ModalView,
    call_modal,
    confirm_modal,
    decode_state,
    deny_modal,
    encode_state,
    errors,
    form_to_modal,
    note_modal,
    page_of_call,
    read_submission,
)
from tests.platforms import sample_views
from tests.platforms.sample_views import ADDING, a_filing
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import button_action, check_view, labels, parts

REF = ApprovalRef("3a7f3c2e9b", 1)


def a_window(view: dict[str, Any]) -> dict[str, Any]:
    check_view(view)
    return view


def submitted_view(view: dict[str, Any], **typed: Any) -> ModalView:
    """Return the submitted view with the `typed` values; the other fields keep their initial values."""
    values = {}
    for block in view["blocks"]:
        if block["type"] != "input":
            continue
        name, element = block["block_id"], block["element"]
        given_value = typed.get(name.removeprefix(FIELD), ...)
        values[name] = {element["action_id"]: _state(element, given_value)}
    return ModalView.read({**view, "state": {"values": values}})


def _state(element: dict[str, Any], value: Any) -> dict[str, Any]:
    if element["type"] == "plain_text_input":
        return {"type": element["type"], "value": element.get("initial_value") if value is ... else value}
    initial = element.get("initial_option")
    chosen = initial if value is ... else next(each for each in element["options"] if each["value"] == value)
    return {"type": element["type"], "selected_option": chosen}


def with_arguments(arguments: Mapping[str, Any], status: StepStatus = StepStatus.AWAITING) -> Any:
    step = a_filing(status)
    return replace(step, call=replace(step.call, arguments=arguments))


# Complete calls


def test_a_call_is_shown_with_every_argument_in_full() -> None:
    text = outline(a_window(call_modal(a_filing(StepStatus.AWAITING), 1, "kept"))["blocks"])
    assert str(sample_views.ISSUE["description"]) in text


def test_a_likely_secret_and_its_approval_are_in_the_view_of_the_whole_call_alone() -> None:
    step = with_arguments(sample_views.ROTATION)
    shared = a_window(call_modal(step, 1))["blocks"]
    assert "curl" not in outline(shared)
    assert "characters look like a secret" in outline(shared)
    assert labels(shared) == ["Deny…"]
    whole = a_window(call_modal(step, 1, whole=True))["blocks"]
    assert str(sample_views.ROTATION["command"]) in outline(whole)
    assert decode(*button_action(whole, "Approve: Create issue")) == Approve((REF,))


def test_a_call_of_several_pages_is_approved_from_the_last_one() -> None:
    step = with_arguments({"token": "".join(f"[{number}]" for number in range(45_000))})
    last = page_of_call(step, 99)
    assert last.number == last.of > 2
    pages = [a_window(call_modal(step, page, whole=True))["blocks"] for page in range(1, last.of + 1)]
    assert [any(label.startswith("Approve") for label in labels(page)) for page in pages] == [
        *[False] * (last.of - 1),
        True,
    ]


def test_a_long_name_is_shown_to_its_end() -> None:
    name = "".join(f"[{number}]" for number in range(800))
    blocks = a_window(call_modal(with_arguments({name: "x"}), 1))["blocks"]
    text = "".join(
        part["elements"][0]["text"] for part in parts(blocks) if part.get("type") == "rich_text_preformatted"
    )
    assert name in text


def test_its_buttons_decide_the_same_call() -> None:
    blocks = a_window(call_modal(a_filing(StepStatus.AWAITING), 1))["blocks"]
    assert decode(*button_action(blocks, "Approve: Create issue")) == Approve((REF,))
    assert decode(*button_action(blocks, "Deny…")) == OpenDenyForm(REF)


def test_a_decided_call_has_no_buttons_and_says_how_it_was_decided() -> None:
    blocks = a_window(call_modal(a_filing(StepStatus.DENIED, **sample_views.SAM), 1))["blocks"]
    assert labels(blocks) == []
    assert outline(blocks).endswith("Denied by Sam")


def test_a_call_without_arguments_says_so() -> None:
    assert "This call has no arguments." in outline(a_window(call_modal(with_arguments({}), 1))["blocks"])


def test_a_call_too_long_for_one_modal_has_pages() -> None:
    text = "".join(f"[{number}]" for number in range(45_000))
    step = with_arguments({"text": text})
    first = a_window(call_modal(step, 1))
    assert decode(*button_action(first["blocks"], "More ▶")) == ViewCall(REF, 2)
    shown, page = "", 1
    while True:
        blocks = a_window(call_modal(step, page))["blocks"]
        shown += "".join(
            part["elements"][0]["text"] for part in parts(blocks) if part.get("type") == "rich_text_preformatted"
        )
        if "More ▶" not in labels(blocks):
            break
        page += 1
    assert page > 2
    assert shown == text
    assert a_window(call_modal(step, 99)) == a_window(call_modal(step, page))


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=3_000), max_size=30), st.integers(-2, 20))
def test_a_modal_of_any_arguments_is_within_the_limits_of_slack(arguments: dict[str, str], page: int) -> None:
    a_window(call_modal(with_arguments(arguments), page))


# Reasons and confirmations


def test_a_denial_comes_back_with_its_reason() -> None:
    view = a_window(deny_modal(OpenDenyForm(REF), "kept"))
    assert read_submission(submitted_view(view, **{REASON: " use INC "})) == (DenialSubmitted(REF, "use INC"), "kept")
    assert read_submission(submitted_view(view, **{REASON: None})) == (DenialSubmitted(REF, ""), "kept")


def test_a_confirmation_returns_the_typed_text() -> None:
    press = OpenConfirmation(("mcp", "remove", "jira"), "jira", "Remove jira")
    view = a_window(confirm_modal(press, "kept"))
    assert outline(view["blocks"]) == "Type jira to confirm* <plain_text_input>"
    assert read_submission(submitted_view(view, **{TYPED: "jira"})) == (
        RunCommand(("mcp", "remove", "jira", "--confirm=jira")),
        "kept",
    )


# Forms


def test_a_form_has_a_field_for_each_kind_with_its_value() -> None:
    view = a_window(form_to_modal(ADDING, "kept"))
    assert (view["title"]["text"], view["submit"]["text"]) == ("Add server · 1 of 2", "Continue")
    assert (
        outline(view["blocks"])
        == """\
Nothing is connected to before you have seen what it offers.
Name* <plain_text_input> GitHub
Transport* <radio_buttons> http
Server address* <plain_text_input>
  . ⚠ Use https.
Other headers <plain_text_input>
Trusted <radio_buttons> no"""
    )


def test_a_form_returns_every_field_and_its_context() -> None:
    back = read_submission(
        submitted_view(form_to_modal(ADDING, "kept"), where="https://x.example/mcp", transport="stdio", headers=None)
    )
    submission = FormSubmitted(
        "mcp add:1",
        {
            "policy": "ask",
            "title": "GitHub",
            "transport": "stdio",
            "where": "https://x.example/mcp",
            "headers": "",
            "trusted": "no",
        },
    )
    assert back == (submission, "kept")


def test_an_error_stands_below_its_field() -> None:
    assert errors(ADDING) == {"field.where": "Use https."}
    assert errors(replace(ADDING, fields=ADDING.fields[:2])) == {}
    blocks = {block.get("block_id") for block in form_to_modal(ADDING, "kept")["blocks"]}
    assert set(errors(ADDING)) <= blocks


def test_a_secret_is_never_asked_for() -> None:
    secret = Field("hidden", "Secret", FieldKind.SECRET, value="hunter2", error="no")
    view = a_window(form_to_modal(Form("f", "Sign in", (secret,)), "kept"))
    assert "hunter2" not in json.dumps(view)
    assert [block["type"] for block in view["blocks"] if block["type"] == "input"] == []
    assert errors(Form("f", "Sign in", (secret,))) == {}


def test_choices_that_slack_does_not_take_are_typed() -> None:
    long = Field("server", "Server", FieldKind.CHOICE, "which", choices=("x" * 100, "b"))
    view = a_window(form_to_modal(Form("f", "F", (long,)), "kept"))
    assert view["blocks"][0]["element"]["type"] == "plain_text_input"
    many = Field("server", "Server", FieldKind.CHOICE, choices=tuple(f"server-{number}" for number in range(50)))
    assert a_window(form_to_modal(Form("f", "F", (many,)), "k"))["blocks"][0]["element"]["type"] == "static_select"


def test_a_long_title_stands_in_the_modal_in_full() -> None:
    form = Form("f", "A title that is much longer than Slack's", (Field("a", "A"),))
    assert outline(a_window(form_to_modal(form, "k"))["blocks"]).startswith(form.title)


def test_a_form_that_carries_more_than_slack_takes_says_how_else_to_do_it() -> None:
    heavy = {f"field{number}": "".join(chr(97 + (number * i) % 26) + str(i) for i in range(900)) for number in range(9)}
    view = a_window(form_to_modal(replace(ADDING, carried=heavy, instead="/mcp add NAME"), "k"))
    assert outline(view["blocks"]) == f"{TOO_LONG}\n/mcp add NAME"


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=10), st.text(max_size=300))
def test_the_context_of_a_form_comes_back(carried: dict[str, str], keep: str) -> None:
    metadata = encode_state("mcp add:2", keep, carried)
    if metadata is not None:
        assert len(metadata) <= 3000
        assert decode_state(metadata) == ("mcp add:2", keep, carried)


@pytest.mark.parametrize(
    "metadata", ["", "nonsense", "[1]", '["kept", "deny:a"]', '["kept", "stop:t1"]', "z:%%%", "z:VPRnu", "{}"]
)
@pytest.mark.parametrize("callback", ["cs.action", "cs.form", "other", None])
def test_a_foreign_view_is_ignored(callback: str | None, metadata: str) -> None:
    assert read_submission(ModalView.read({"callback_id": callback, "private_metadata": metadata})) is None


TEXTS = st.text(max_size=120)
FIELDS = st.builds(
    Field,
    st.integers(0, 10_000).map(str),
    TEXTS,
    st.sampled_from(list(FieldKind)),
    TEXTS,
    st.booleans(),
    st.lists(TEXTS, max_size=8).map(tuple),
    st.text(max_size=4_000),
    TEXTS,
    st.integers(1, 10_000),
)


@given(st.lists(FIELDS, max_size=5, unique_by=lambda field: field.name), TEXTS, TEXTS, st.text(max_size=4_000))
def test_a_form_of_any_fields_is_within_the_limits_of_slack(
    fields: list[Field], title: str, submit: str, intro: str
) -> None:
    a_window(form_to_modal(Form("f:1", title, tuple(fields), submit, intro), "k" * 1_000))


@given(TEXTS, st.text(max_size=5_000))
def test_words_alone_fit_in_a_modal(title: str, text: str) -> None:
    a_window(note_modal(title, text))
