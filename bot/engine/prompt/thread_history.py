"""Earlier turns whose content is deleted, from the messages of their conversation on its platform.

Their rows say which message was the question of which turn, and which messages were its answer. What other users wrote
before a question is information for the model, as in the context of a turn. Cards and notices are no part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.conversations import ConversationKey
from bot.domain.messages import Message, assistant, enclose, user
from bot.domain.turns import MessageRefs, TurnRecord
from bot.engine.prompt.text_format import clean_name, question_message
from bot.i18n import gettext_lazy
from bot.ports.platform import PostedText

ReadThread = Callable[[ConversationKey, Mapping[str, MessageRefs]], Awaitable[Sequence[PostedText]]]
"""Reads the messages of a conversation, as `ThreadReader.read_thread`; empty where the platform has none. Raises
DeliveryFailed and TimeoutError.
"""
UNREAD_THREAD = gettext_lazy("What was said here before could not be read: I do not know it now.")
_OTHERS = "What others said here before"
_SOURCE = "this conversation"
_UNNAMED = "Somebody"
_NO_MESSAGE = "(This question was no message here, or was deleted.)"


@dataclass(frozen=True, slots=True)
class ThreadTurn:
    """A turn as its platform shows it: its row, the messages for the prompt, and the question. `has_others` is True if
    the messages of other users are among them.
    """

    record: TurnRecord
    messages: tuple[Message, ...]
    question: str
    has_others: bool


def turns_of_thread(
    records: Sequence[TurnRecord], thread: Sequence[PostedText], *, shared: bool
) -> Sequence[ThreadTurn]:
    """Return those of these turns, oldest first, of which the thread shows anything. In a `shared` conversation each
    question names its author.
    """
    if not records:
        return ()
    by_question = {
        record.turn.question.message_id: record.turn.id for record in records if record.turn.question.message_id
    }
    questions: dict[str, str] = {}
    answers: defaultdict[str, list[str]] = defaultdict(list)
    others: dict[str, list[str]] = {}
    unassigned: list[str] = []
    for posted in thread:
        if posted.answer_of:
            answers[posted.answer_of].append(posted.text)
        elif (turn_id := by_question.get(posted.id)) is not None:
            questions[turn_id] = posted.text
            others[turn_id], unassigned = unassigned, []
        elif posted.text and records[0].turn.conversation.thread:
            # Elsewhere, a channel holds many conversations. Those behind the last question are left out, because they
            # are in the context of the present one.
            unassigned.append(_line(posted))
    turns = []
    for record in records:
        turn = record.turn
        messages = [_information(others[turn.id])] if others.get(turn.id) else []
        question, answer = questions.get(turn.id, ""), "\n\n".join(filter(None, answers[turn.id]))
        if not (question or answer):
            continue
        text = question or _NO_MESSAGE
        messages.append(question_message(turn, text, shared=shared))
        if answer:
            messages.append(assistant(answer))
        turns.append(ThreadTurn(record, tuple(messages), question, bool(others.get(turn.id))))
    return turns


def _line(posted: PostedText) -> str:
    # No line of a text may look like the beginning of somebody else's.
    return f"{clean_name(posted.name) or _UNNAMED}: {posted.text}".replace("\n", "\n    ")


def _information(lines: Sequence[str]) -> Message:
    return user(f"{_OTHERS}:\n{enclose(_SOURCE, chr(10).join(lines))}")
