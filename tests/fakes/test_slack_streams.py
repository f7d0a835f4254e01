"""Streams: how they start, grow, end, expire and fill up."""

from __future__ import annotations

from typing import Any

from slack_sdk.models.messages.chunk import BlocksChunk, MarkdownTextChunk, PlanUpdateChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import Channel, FakeSlack, Message, User
from tests.fakes.slack_refusals import code

SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "below"}}


def asked(slack: FakeSlack, *, in_channel: bool = False) -> tuple[User, Channel, Message]:
    """A person, a place and their question there."""
    priya = slack.user("Priya")
    place = slack.channel("incidents", priya, slack.user("Lee")) if in_channel else slack.dm(priya)
    return priya, place, slack.say(priya, place, "why?")


async def started(client: AsyncWebClient, place: Channel, question: Message, **more: Any) -> str:
    answer = await client.chat_startStream(channel=place.id, thread_ts=question.ts, **more)
    return str(answer["ts"])


async def test_the_real_helper_streams_text_tasks_and_a_plan(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, place, question = asked(slack)
    stream = await client.chat_stream(channel=place.id, thread_ts=question.ts, buffer_size=4, task_display_mode="plan")
    await stream.append(chunks=[PlanUpdateChunk(title="Searching")])
    await stream.append(chunks=[TaskUpdateChunk(id="t1", title="Read deploys", status="in_progress", details="two")])
    await stream.append(markdown_text="**Check**")
    await stream.append(chunks=[TaskUpdateChunk(id="t1", title="Read deploys", status="complete", output="found")])
    assert slack.what_user_sees(priya, place)[-1].streaming
    await stream.stop(markdown_text="out's 502s", blocks=[SECTION])

    seen = slack.what_user_sees(priya, place)[-1]
    assert not seen.streaming
    assert seen.words == "Searching\nRead deploys two found\n**Check**out's 502s\nbelow"
    assert slack.calls.methods() == [
        *("chat.startStream", "chat.appendStream", "chat.appendStream", "chat.appendStream", "chat.stopStream"),
    ]


async def test_in_a_channel_a_stream_has_one_recipient_who_sees_it_grow(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    priya, place, question = asked(slack, in_channel=True)
    lee = next(user for user in slack.workspace.users.values() if user.name == "Lee")
    assert await code(started(client, place, question)) == "missing_recipient_user_id"
    assert await code(started(client, place, question, recipient_user_id=priya.id)) == "missing_recipient_team_id"
    recipient = {"recipient_user_id": priya.id, "recipient_team_id": priya.team.id}
    ts = await started(client, place, question, markdown_text="one ", **recipient)
    await client.chat_appendStream(channel=place.id, ts=ts, markdown_text="two")

    assert slack.what_user_sees(priya, place)[-1].words == "one two"
    assert slack.what_user_sees(lee, place)[-1].words == "one "
    await client.chat_stopStream(channel=place.id, ts=ts)
    assert slack.what_user_sees(lee, place)[-1].words == "one two"


async def test_a_stream_answers_a_message_where_streams_are_possible(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    assert await code(client.chat_startStream(channel=place.id, thread_ts="")) == "invalid_arguments"
    assert await code(client.chat_startStream(channel=place.id, thread_ts="1.000001")) == "thread_not_found"
    assert await code(started(client, place, question, task_display_mode="loud")) == "invalid_arguments"
    place.streams = False
    assert await code(started(client, place, question)) == "channel_type_not_supported"


async def test_a_stream_dies_five_minutes_after_its_start_even_with_traffic(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question, markdown_text="a")
    slack.clock.advance(290)
    await client.chat_appendStream(channel=place.id, ts=ts, markdown_text="b")
    slack.clock.advance(10)
    late = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="c")
    assert await code(late) == "message_not_in_streaming_state"
    assert await code(client.chat_stopStream(channel=place.id, ts=ts)) == "message_not_in_streaming_state"
    await client.chat_update(channel=place.id, ts=ts, text="whole")
    assert slack.posted(place)[0].text == "whole"


async def test_an_expired_stream_can_be_updated_although_nobody_stopped_it(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question, markdown_text="a")
    slack.clock.advance(300)
    await client.chat_update(channel=place.id, ts=ts, text="whole")


async def test_a_message_that_is_streaming_cannot_be_updated_and_a_stopped_one_not_appended(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question, markdown_text="a")
    assert await code(client.chat_update(channel=place.id, ts=ts, text="x")) == "streaming_state_conflict"
    await client.chat_stopStream(channel=place.id, ts=ts)
    more = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="b")
    assert await code(more) == "message_not_in_streaming_state"
    plain = (await client.chat_postMessage(channel=place.id, text="x"))["ts"]
    never = client.chat_appendStream(channel=place.id, ts=plain, markdown_text="b")
    assert await code(never) == "message_not_in_streaming_state"
    hers = client.chat_appendStream(channel=place.id, ts=question.ts, markdown_text="b")
    assert await code(hers) == "message_not_owned_by_app"


async def test_a_stream_with_tasks_is_full_at_its_size_and_one_of_text_later(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    task = TaskUpdateChunk(id="t", title="t", status="complete")
    ts = await started(client, place, question, chunks=[task, MarkdownTextChunk(text="é" * 5_400)])
    full = client.chat_appendStream(channel=place.id, ts=ts, chunks=[MarkdownTextChunk(text="é" * 100)])
    assert await code(full) == "msg_too_long"
    await client.chat_appendStream(channel=place.id, ts=ts, chunks=[MarkdownTextChunk(text="e" * 100)])

    ts = await started(client, place, question, markdown_text="x" * 12_000)
    for _ in range(2):
        await client.chat_appendStream(channel=place.id, ts=ts, markdown_text="x" * 12_000)
    last = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="x" * 3_001)
    assert await code(last) == "msg_too_long"
    await client.chat_appendStream(channel=place.id, ts=ts, markdown_text="x" * 3_000)


async def test_a_refused_piece_leaves_the_stream_as_it_was(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question, markdown_text="a")
    long = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="x" * 12_001)
    assert await code(long) == "msg_too_long"
    await client.chat_appendStream(channel=place.id, ts=ts, markdown_text="b")
    assert slack.posted(place)[0].text == "ab"


async def test_a_stream_grows_in_the_one_way_it_began(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    chunk = MarkdownTextChunk(text="b")
    ts = await started(client, place, question, markdown_text="a")
    both = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="b", chunks=[chunk])
    assert await code(both) == "cannot_provide_both_markdown_text_and_chunks"
    other = client.chat_appendStream(channel=place.id, ts=ts, chunks=[chunk])
    assert await code(other) == "streaming_mode_mismatch"
    assert await code(client.chat_appendStream(channel=place.id, ts=ts)) == "no_text"


async def test_chunks_have_a_form_and_limits(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question)

    async def appended(*chunks: object) -> str:
        return await code(client.chat_appendStream(channel=place.id, ts=ts, chunks=list(chunks)))  # type: ignore[arg-type]

    task = {"type": "task_update", "id": "t", "title": "t", "status": "complete"}
    for field in ("title", "details", "output"):
        await client.chat_appendStream(channel=place.id, ts=ts, chunks=[{**task, "id": field, field: "x" * 256}])
        assert await appended({**task, "id": field, field: "x" * 257}) == "invalid_chunks"
    assert await appended({**task, "status": "done"}) == "invalid_chunks"
    assert await appended({"type": "plan_update", "title": "x" * 257}) == "invalid_chunks"
    assert await appended({"type": "markdown_text", "text": "x" * 12_001}) == "invalid_chunks"
    assert await appended({"type": "shout"}) == "invalid_chunks"
    assert await appended(BlocksChunk(blocks=[{"type": "banner"}])) == "invalid_chunks"
    assert await appended(BlocksChunk(blocks=[SECTION] * 51)) == "msg_blocks_too_many"
    await client.chat_appendStream(channel=place.id, ts=ts, chunks=[BlocksChunk(blocks=[SECTION] * 50)])
    assert await appended(BlocksChunk(blocks=[SECTION])) == "msg_blocks_too_many"


async def test_fifty_blocks_in_chunks_and_fifty_more_at_the_stop(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    ts = await started(client, place, question, chunks=[BlocksChunk(blocks=[SECTION] * 50)])
    too_many = client.chat_stopStream(channel=place.id, ts=ts, blocks=[SECTION] * 51)
    assert await code(too_many) == "invalid_blocks"
    await client.chat_stopStream(channel=place.id, ts=ts, blocks=[SECTION] * 50)
    assert len(slack.posted(place)[0].blocks) == 100


async def test_details_and_output_of_a_task_are_appended(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, question = asked(slack)
    task = {"type": "task_update", "id": "t", "title": "t", "status": "in_progress", "details": "one "}
    ts = await started(client, place, question, chunks=[task])
    await client.chat_appendStream(channel=place.id, ts=ts, chunks=[{**task, "details": "two", "title": "u"}])
    stream = slack.posted(place)[0].stream
    assert stream is not None
    assert stream.tasks["t"] == {"id": "t", "title": "u", "status": "in_progress", "details": "one two"}


async def test_a_stream_is_a_session_at_work_and_its_stop_says_what_it_is_then(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    session = slack.workspace.sessions
    ts = await started(client, place, question, markdown_text="a")
    assert session[place.id, question.ts]["status"] == "processing"
    odd = client.chat_stopStream(channel=place.id, ts=ts, session_status="asleep")
    assert await code(odd) == "invalid_arguments"
    await client.chat_stopStream(channel=place.id, ts=ts, session_status="suspended")
    assert session[place.id, question.ts]["status"] == "suspended"


# Statuses and sessions


async def test_a_status_is_shown_until_a_message_comes_or_two_minutes_have_passed(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    target: dict[str, Any] = {"channel_id": place.id, "thread_ts": question.ts}
    await client.assistant_threads_setStatus(status="is thinking", loading_messages=["…"] * 10, **target)
    assert slack.status(place, question.ts) == "is thinking"
    slack.clock.advance(121)
    assert slack.status(place, question.ts) == ""
    await client.assistant_threads_setStatus(status="is reading", **target)
    await client.chat_postMessage(channel=place.id, thread_ts=question.ts, text="here")
    assert slack.status(place, question.ts) == ""
    await client.assistant_threads_setStatus(status="is reading", **target)
    await client.assistant_threads_setStatus(status="", **target)
    assert slack.status(place, question.ts) == ""
    many = client.assistant_threads_setStatus(status="x", loading_messages=["…"] * 11, **target)
    assert await code(many) == "invalid_arguments"


async def test_a_session_has_a_state_a_title_and_a_stop_button(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, place, question = asked(slack)
    target = {"channel_id": place.id, "thread_ts": question.ts}
    ts = await started(client, place, question, markdown_text="a")
    await client.agents_sessions_setStatus(status="processing", **target)
    await client.agents_sessions_rename(title="x" * 200, **target)
    assert await code(client.agents_sessions_rename(title="x" * 201, **target)) == "invalid_arguments"
    assert await code(client.agents_sessions_setStatus(status="asleep", **target)) == "invalid_arguments"

    slack.stop(priya, place, question.ts)

    assert slack.sent[-1].event["type"] == "agent_session_stopped"
    assert slack.sent[-1].event["streaming_message_ts"] == [ts]
    more = client.chat_appendStream(channel=place.id, ts=ts, markdown_text="b")
    assert await code(more) == "message_not_in_streaming_state"


async def test_without_the_event_there_is_a_warning_and_without_an_agent_no_session(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    _, place, question = asked(slack)
    target = {"channel_id": place.id, "thread_ts": question.ts}
    slack.app.events.discard("agent_session_stopped")
    answer = await client.agents_sessions_setStatus(status="processing", **target)
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    slack.app.agent = False
    assert await code(client.agents_sessions_setStatus(status="active", **target)) == "not_authorized"


async def test_four_prompts_may_be_suggested(slack: FakeSlack, client: AsyncWebClient) -> None:
    _, place, _ = asked(slack)
    prompts = [{"title": "t", "message": "m"}]
    await client.assistant_threads_setSuggestedPrompts(channel_id=place.id, prompts=prompts * 4)
    five = client.assistant_threads_setSuggestedPrompts(channel_id=place.id, prompts=prompts * 5)
    assert await code(five) == "invalid_arguments"
