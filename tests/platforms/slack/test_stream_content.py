"""Turns as native streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk

from bot.domain.turns import StepStatus, TurnStatus
from bot.platforms.slack.message_blocks import turn_messages
from bot.platforms.slack.sending import Stream, Task, TaskStatus, streams
from tests.fakes.slack.chunks import checked_chunks
from tests.platforms import sample_views
from tests.platforms.sample_views import a_call, a_filing, a_reply, a_view
from tests.rendering.markdown_texts import ANY, LARGE


def check(stream: Stream) -> None:
    """Check that Slack accepts each chunk."""
    chunks = [
        TaskUpdateChunk(
            id=task.id, title=task.title, status=task.status.value, details=task.details, output=task.output
        ).to_dict()
        for task in stream.tasks
    ]
    if stream.text:
        chunks.append(MarkdownTextChunk(text=stream.text).to_dict())
    checked_chunks([{key: value for key, value in chunk.items() if value != ""} for chunk in chunks])


def test_a_stream_has_the_text_so_far_and_a_task_for_each_call() -> None:
    (stream,) = streams(sample_views.WRITING)
    check(stream)
    assert stream.text == "I look at the deploys and the logs."
    assert stream.tasks == (
        Task("call-1", "List deploys", TaskStatus.COMPLETE, "github.list_deploys", "2 deploys since 13:30"),
        Task("call-2", "Search logs", TaskStatus.IN_PROGRESS, "grafana.search_logs"),
    )
    assert (stream.name, stream.open) == ("answer-0", True)


def test_a_stream_stops_before_an_approval_is_waited_for_and_no_task_is_left_spinning() -> None:
    assert streams(sample_views.ASKED) == (), "the card tells it"
    (stream,) = streams(sample_views.ASKED, {"answer-0": "+C1:1.0"})
    assert not stream.open
    assert [(task.title, task.status) for task in stream.tasks] == [
        ("Asked for an approval: Create issue", TaskStatus.COMPLETE)
    ]


def test_after_the_approval_a_new_message_is_streamed() -> None:
    view = a_view(a_reply(0, "Shall I?"), a_filing(StepStatus.DONE, "ok", **sample_views.SAM), streaming="Filed")
    assert [(stream.name, stream.text, stream.open) for stream in streams(view)] == [
        ("answer-1", "Shall I?\n\nFiled", True),
    ]


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED])
def test_when_a_turn_has_ended_nothing_is_streamed_and_nothing_spins(status: TurnStatus) -> None:
    view = a_view(a_call(1, sample_views.LOGS, StepStatus.STARTED), status=status)
    (stream,) = streams(view)
    assert not stream.open
    assert all(task.status is not TaskStatus.IN_PROGRESS for task in stream.tasks)


@given(LARGE, st.integers(0, 20_000))
def test_streamed_text_is_never_taken_back(text: str, cut: int) -> None:
    for early, late in zip(streams(a_view(streaming=text[:cut])), streams(a_view(streaming=text)), strict=False):
        check(late)
        assert late.text.startswith(early.text)


@given(LARGE)
def test_the_finished_text_goes_on_from_the_streamed_one(text: str) -> None:
    during = streams(a_view(streaming=text))
    after = streams(a_view(a_reply(0, text), status=TurnStatus.DONE))
    assert [each.name for each in after] == [each.name for each in during]
    assert all(late.text.startswith(early.text) for early, late in zip(during, after, strict=True))


@given(ANY)
def test_streams_and_messages_are_the_same_messages(text: str) -> None:
    view = a_view(a_reply(0, text), a_call(1, sample_views.LOGS, StepStatus.STARTED), streaming=text)
    assert [stream.name for stream in streams(view)] == [slot.name for slot in turn_messages(view, sample_views.NOW)]
