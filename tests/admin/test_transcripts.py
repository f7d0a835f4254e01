"""A conversation as Markdown."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.admin.conversations import format_code_block, format_transcript, inline_code
from bot.domain.approvals import Approval
from bot.domain.conversations import Attachment
from bot.domain.messages import FilePart, ImagePart
from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnInput, TurnStatus
from tests.admin.finished_turn import a_view
from tests.fakes.parts import ANA, HALL


def test_a_transcript_holds_every_question_call_and_answer() -> None:
    assert format_transcript(HALL, "hello", [a_view()]) == (
        "# `hello`\n\n`test:w:hall:1`, 1 turn, times in UTC\n\n## `Ana` · 2027-01-15 08:00\n\n> hello\n\n"
        '### Call `notes.list`: done\n\n```json\n{\n  "of": "ana"\n}\n```\n\n```\n3 notes\n```\n\nHello!\n'
    )


def test_a_turn_that_failed_or_goes_on_says_so() -> None:
    assert "_Failed:_ `no model`" in format_transcript(HALL, "", [a_view(status=TurnStatus.FAILED, failure="no model")])
    assert "_This turn has not ended._" in format_transcript(HALL, "", [a_view(status=TurnStatus.RUNNING)])


@given(st.text(alphabet="`~ab\n #>", max_size=60))
def test_no_text_of_a_tool_gets_out_of_its_fence(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(f"{format_code_block(text)}\n\n# after\n")
    assert [token.type for token in tokens][:2] == ["fence", "heading_open"]
    assert tokens[0].content == f"{text}\n"


@given(st.text(alphabet="`ab *_<", min_size=1, max_size=30))
def test_a_name_of_any_characters_is_code(text: str) -> None:
    line = inline_code(text)
    if not text.split():
        assert line == ""
        return
    children = MarkdownIt("commonmark").parse(f"x {line} y")[1].children or []
    assert [child.type for child in children] == ["text", "code_inline", "text"]


@given(st.lists(st.text(alphabet="`~ab\n ", max_size=40), min_size=2, max_size=2))
def test_a_reply_with_an_open_fence_does_not_swallow_the_next_turn(replies: list[str]) -> None:
    text = format_transcript(HALL, "t", [a_view(reply=reply) for reply in replies])
    headings = [
        token for token in MarkdownIt("commonmark").parse(text) if token.type == "heading_open" and token.tag == "h2"
    ]
    assert len(headings) >= 2


def test_a_question_cannot_pass_for_a_heading() -> None:
    assert "\n# mine" not in format_transcript(HALL, "t", [a_view(text="a\n# mine\n\nb")])


def test_a_kind_of_file_that_a_server_made_up_forges_no_heading() -> None:
    view = a_view()
    parts = (ImagePart(b"x", "image/png\n\n## `Ana` · forged"), FilePart(b"y", "text/plain\n\n# forged", "a.txt"))
    steps = tuple(
        replace(step, result=replace(step.result, parts=parts))
        if isinstance(step, ToolStep) and step.result is not None
        else step
        for step in view.steps
    )
    tokens = MarkdownIt("commonmark").parse(format_transcript(HALL, "", [replace(view, steps=steps)]))
    headings = [tokens[index + 1].content for index, token in enumerate(tokens) if token.type == "heading_open"]
    assert not [heading for heading in headings if "forged" in heading]
    assert "forged" in format_transcript(HALL, "", [replace(view, steps=steps)])


def test_a_transcript_has_attachments_notes_and_decisions_with_their_users() -> None:
    view = a_view(question=TurnInput("read this", (Attachment("f1", "plan.pdf", "application/pdf", 120),)))
    call, reply = view.steps
    assert isinstance(call, ToolStep)
    assert isinstance(reply, ModelStep)
    decided = Approval("card-0001", 1, "print", ANA, None, decided_by="Ben", reason="not today")
    denied = replace(call, tool=None, status=StepStatus.DENIED, approval=decided, result=None)
    garbled = replace(call, n=2, call=replace(call.call, unreadable='{"of": '))
    noted = replace(reply, n=3, notes=("It was cut off.",))
    text = format_transcript(HALL, "", [replace(view, steps=(denied, garbled, noted))])
    assert "Attached: `plan.pdf` (`application/pdf`, 120 bytes)" in text
    assert "### Call `notes__list`: denied" in text, "a tool that nobody knows has the name the model gave it"
    assert "Decided by `Ben`: `not today`" in text
    assert '```json\n{"of": \n```' in text
    assert "_Note:_ `It was cut off.`" in text


def test_likely_secrets_are_counted_and_not_written() -> None:
    view = a_view()
    (step,) = [each for each in view.steps if isinstance(each, ToolStep)]
    called = replace(step, call=replace(step.call, arguments={"token": "; rm -rf /srv", "of": "ana"}))
    text = format_transcript(HALL, "t", [replace(view, steps=(called,))])
    assert '"token": "•••• (13 characters hidden: its name is that of a secret)"' in text
    assert "rm -rf" not in text
