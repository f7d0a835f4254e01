"""Conversations read back from their platform, for operators who keep no content (`ports.platform.ThreadReader`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bot.chat.message_handler import ThreadMessage
from bot.chat.turn_messages import find_answers
from bot.domain.turns import MessageRefs
from bot.ports.platform import PostedText


def conversation_texts(
    messages: Sequence[ThreadMessage],
    posted: Mapping[str, MessageRefs],
    *,
    ref_of: Callable[[ThreadMessage], str],
    id_of: Callable[[ThreadMessage], str],
) -> Sequence[PostedText]:
    """Return the messages of a conversation that belong to its history: those of users, and the answers of the turns in
    `posted`. `ref_of` returns the ref of a message of the bot, `id_of` the id as in `InboundMessage.message_id`.
    """
    answers = find_answers(posted)
    texts = []
    for message in messages:
        turn_id = answers.get(ref_of(message), "") if message.own else ""
        if turn_id or not message.own:
            _, text = message.entry
            texts.append(PostedText(id_of(message), message.name, text, turn_id))
    return texts
