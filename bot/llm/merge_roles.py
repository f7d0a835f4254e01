"""A transcript in the strictest form that chat templates know: the system speaks once and first, then the person and
the assistant in turn, and after a tool the assistant.

Called by `openai_chat_request` for servers that have refused a freer one. Their models' templates say so (Mistral's,
Gemma's); OpenAI and most servers take messages in any order.
"""

from __future__ import annotations

from typing import Any

LEFT_OUT = "(Earlier messages are left out.)"
READ = "(I have read these results.)"

Written = dict[str, Any]


def merge_adjacent_roles(messages: list[Written]) -> list[Written]:
    """The messages of Chat Completions, with what the system says gathered at the beginning and neighbours of one role
    made one.
    """
    said = "\n\n".join(each["content"] for each in messages if each["role"] == "system" and each["content"])
    merged: list[Written] = [{"role": "system", "content": said}] if said else []
    for message in messages:
        last = merged[-1] if merged else {"role": ""}
        match message["role"]:
            case "system":
                continue
            case "assistant" if last["role"] in ("", "system"):
                merged += [{"role": "user", "content": LEFT_OUT}, message]
            case "user" if last["role"] == "tool":  # images that a tool has returned
                merged += [{"role": "assistant", "content": READ}, message]
            case "user" | "assistant" as role if role == last["role"] and not last.get("tool_calls"):
                merged[-1] = {**message, "content": _joined(last["content"], message["content"])}
            case _:
                merged.append(message)
    return merged


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, list) or isinstance(second, list):
        return [*_parts(first), *_parts(second)]
    return "\n\n".join(text for text in (first, second) if text) or second


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
