from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.llm.openai_chat import READ, merge_adjacent_roles

Written = dict[str, Any]

CONTENTS = st.text(max_size=3) | st.lists(st.builds(lambda said: {"type": "text", "text": said}, st.text(max_size=3)))
SAID = st.builds(lambda content: [{"role": "user", "content": content}], CONTENTS)
ANSWERED = st.builds(lambda content: [{"role": "assistant", "content": content}], CONTENTS | st.none())
INSTRUCTED = st.builds(lambda content: [{"role": "system", "content": content}], st.text(max_size=3))


def call_messages(count: int, content: str | None) -> list[Written]:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in range(count)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": f"r{call['id']}"} for call in calls]
    return [{"role": "assistant", "content": content, "tool_calls": calls}, *results]


CALLED = st.builds(call_messages, st.integers(1, 3), st.text(max_size=3) | st.none())
TRANSCRIPTS = st.lists(SAID | ANSWERED | INSTRUCTED | CALLED, max_size=8).map(
    lambda parts: [*chain.from_iterable(parts)]
)


def texts(message: Written) -> list[str]:
    content = message["content"] or ""
    return [content] if isinstance(content, str) else [part["text"] for part in content]


@given(TRANSCRIPTS)
def test_the_strictest_templates_take_any_conversation(transcript: list[Written]) -> None:
    merged = merge_adjacent_roles(transcript)
    # Mistral's templates: user and assistant alternate, apart from its calls, and only the assistant follows a result.
    speaking = [
        message["role"]
        for message in merged
        if message["role"] == "user" or (message["role"] == "assistant" and not message.get("tool_calls"))
    ]
    assert speaking == [("user", "assistant")[n % 2] for n in range(len(speaking))]
    assert "system" not in [message["role"] for message in merged[1:]]
    for message, other in pairwise(merged):
        if message["role"] == "assistant" and message.get("tool_calls"):
            assert other["role"] == "tool"
        if message["role"] == "tool":
            assert other["role"] in {"tool", "assistant"}


@given(TRANSCRIPTS)
def test_nothing_that_was_said_is_lost(transcript: list[Written]) -> None:
    merged = "".join(text for role in merge_adjacent_roles(transcript) for text in texts(role))
    assert all(text in merged for message in transcript for text in texts(message))
    ids = [
        [call["id"] for line in lines for call in line.get("tool_calls", ())]
        for lines in (transcript, merge_adjacent_roles(transcript))
    ]
    assert ids[0] == ids[1]


def test_images_that_a_tool_has_returned_follow_a_word_of_the_assistant() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    question, calling, result = {"role": "user", "content": "What is there?"}, *call_messages(1, None)
    answer = {"role": "assistant", "content": "A cat."}
    word = {"role": "assistant", "content": READ}
    assert merge_adjacent_roles([question, calling, result, image, answer]) == [
        question,
        calling,
        result,
        word,
        image,
        answer,
    ]
