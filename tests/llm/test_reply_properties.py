"""Any JSON of a service, in any order, results in a storable completion or an error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.completions import UsageReported
from bot.llm import anthropic, openai_chat, openai_responses
from bot.llm.provider_service import ProviderRejected, classify
from bot.llm.reply_draft import Delta, ReplyDraft

DRAFTS = [anthropic.ReplyDraft, openai_chat.ReplyDraft, openai_responses.ReplyDraft]

KINDS = st.sampled_from(
    [
        *("message_start", "content_block_start", "content_block_delta", "message_delta", "message", "error", "ping"),
        *("response.output_item.added", "response.output_item.done", "response.output_text.delta"),
        *("response.function_call_arguments.delta", "response.reasoning_summary_text.delta", "response.refusal.delta"),
        *("response.completed", "response.incomplete", "response.failed"),
        *("text", "text_delta", "thinking", "thinking_delta", "signature_delta", "input_json_delta", "tool_use"),
        *("function_call", "reasoning", "reasoning.text", "output_text", "refusal", "redacted_thinking"),
        *("end_turn", "pause_turn", "stop", "length", "tool_calls", "completed"),
    ]
)
NAMES = st.sampled_from(
    [
        *("type", "index", "delta", "content_block", "message", "usage", "error", "text", "thinking", "signature"),
        *("data", "partial_json", "input", "id", "name", "stop_reason", "stop_details", "explanation", "content"),
        *("choices", "finish_reason", "tool_calls", "function", "arguments", "reasoning", "reasoning_content"),
        *("reasoning_details", "refusal", "output_index", "item", "item_id", "call_id", "response", "status", "output"),
        *("summary", "summary_index", "encrypted_content", "phase", "incomplete_details", "reason", "object", "code"),
        *("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "prompt_tokens_details"),
        *("cached_tokens", "input_tokens_details"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | KINDS | st.text(max_size=5) | st.just("\ud83d")
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=12
)
EVENTS = st.lists(
    st.tuples(st.dictionaries(NAMES, VALUES, max_size=6), KINDS).map(lambda each: {**each[0], "type": each[1]})
    | st.dictionaries(NAMES, VALUES, max_size=6),
    max_size=8,
)


@pytest.mark.parametrize("draft_of", DRAFTS)
@given(EVENTS)
def test_a_reply_of_anything_can_be_kept_or_is_an_error(draft_of: Any, events: list[dict[str, Any]]) -> None:
    draft: ReplyDraft = draft_of()
    shown: list[Delta] = []
    with suppress(ProviderRejected):
        try:
            for event in events:
                shown += draft.take(event)
        except ProviderRejected as error:
            classify(error.error)
            raise
    completion = draft.completion()
    assert draft.finished is (completion is not None)
    if completion is not None:
        usage = completion.usage
        assert 0 <= usage.cached_tokens + usage.cache_writes <= usage.input_tokens
        assert 0 <= usage.reasoning_tokens <= usage.output_tokens
        assert len({call.id for call in completion.message.tool_calls}) == len(completion.message.tool_calls)
        kept = [dict(completion.message.provider_metadata), *(dict(c.arguments) for c in completion.message.tool_calls)]
        json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
        for text in (completion.message.text, *(delta.text for delta in shown if not isinstance(delta, UsageReported))):
            text.encode()
    draft.resume()
