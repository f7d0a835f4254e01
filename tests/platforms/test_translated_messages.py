"""Cards, forms and lists are in the language of their reader, on every platform."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from bot.chat.actions import ApprovalRef, OpenConfirmation, OpenDenyForm
from bot.chat.approval_inbox import PendingCall, PendingCalls, inbox_confirmation, inbox_message
from bot.chat.command_runner import form_offer, reply_message
from bot.chat.home_message import Home, home_message
from bot.chat.message_handler import ask_again_message
from bot.chat.message_model import Message
from bot.domain.approvals import (
    ApprovalNotice,
    ApprovalRequirements,
    Approver,
    HoursScope,
    PermanentScope,
    PossibleApprovers,
    Scope,
    SelfApproval,
    ThreadScope,
)
from bot.domain.commands import Form, Reply
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView
from bot.i18n import use_language
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.lines import message_text as console_text
from bot.platforms.discord import message_layout
from bot.platforms.discord import modals as discord_modals
from bot.platforms.discord.rest import MessageRef
from bot.platforms.slack import message_blocks, modals
from bot.platforms.slack.home import home_view
from bot.platforms.slack.sending import streams
from bot.ports.platform import OpenElicitation
from bot.rendering.approval_card import approval_card
from tests.i18n.pseudo_language import untranslated_words
from tests.platforms import sample_views
from tests.platforms.sample_views import NOW, a_call, a_filing, a_reply, a_view, an_approval

SHOWN = frozenset({"text", "fallback", "title", "label", "hint", "placeholder", "description", "content", "alt_text"})
"""Keys of payloads with visible texts."""
SYNTAX = frozenset({"date_short_pretty", "time", "utc", "mcp", "grants", "list"})
"""Words of commands, and of Slack's format of times."""
ADA, GUS = (Approver(f"slack:{name.upper()}", name, ApprovalNotice.MENTION) for name in ("Ada", "Gus"))
MANY = PossibleApprovers(((ADA, *(Approver(f"slack:U{number}", f"N{number}") for number in range(8))), (GUS,)))
STRICT = ApprovalRequirements(
    (frozenset({"slack:ADA"}), frozenset({"slack:GUS"})), four_eyes=True, quorum=2, self_approval=SelfApproval.UNKNOWN
)


def cards() -> Iterator[TurnView]:
    """Yield cards with all their parts."""
    proposed = {"project": "INC"}
    for changes in (
        {"proposed": proposed, "revised_by": "Gus"},
        {"requirements": STRICT, "approver_names": ("Ada",), "possible_approvers": MANY},
        {"requirements": STRICT},
        {"expires_in": None, "expires_at": None},
        {"possible_approvers": dataclasses.replace(MANY, note="Ada")},
        {"requirements": ApprovalRequirements(deliver=frozenset({"slack:T1:C9", "slack:GUS"}))},
    ):
        yield a_view(a_filing(StepStatus.AWAITING, **changes), status=TurnStatus.WAITING)
    hostile = a_call(
        3, sample_views.DELETE, StepStatus.AWAITING, arguments=sample_views.ROTATION, approval=an_approval()
    )
    yield a_view(a_reply(0, "x"), hostile, status=TurnStatus.WAITING)
    grants: tuple[Scope, ...] = (ThreadScope(), HoursScope(8), PermanentScope())
    for scope in grants:
        yield a_view(a_filing(StepStatus.DONE, "OPS-1", decided_by="Ada", decided_at=NOW, granted=scope))
    for status in (StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.FAILED, StepStatus.UNKNOWN, StepStatus.CANCELLED):
        yield a_view(a_filing(status, "OPS-1"), status=TurnStatus.DONE)


def turns() -> Iterator[TurnView]:
    yield from cards()
    constants = vars(sample_views).values()
    yield from (value for value in constants if isinstance(value, TurnView))
    yield from sample_views.SETTLED.values()
    yield from sample_views.HEARD.values()
    yield dataclasses.replace(sample_views.QUEUED, blocker=None)
    yield a_view(a_reply(0, "word " * 9_000), status=TurnStatus.RUNNING)
    yield a_view(a_reply(0, "word " * 9_000), status=TurnStatus.DONE)
    yield a_view(*(a_call(n, sample_views.LOGS, StepStatus.DONE, "OPS\nOPS") for n in range(14)))
    yield a_view()


def messages() -> Iterator[tuple[Message, object]]:
    """Yield messages outside of turns, each with its data."""
    view = next(iter(cards()))
    (step,) = (step for step in view.steps if isinstance(step, ToolStep))
    card = approval_card(step)
    assert card is not None
    waiting = PendingCalls([PendingCall(view.turn, step, "https://x.example", is_direct=True)], 9, all_counted=False)
    yield inbox_message(waiting, 2, NOW), waiting
    yield inbox_message(PendingCalls(), 1, NOW), None
    yield inbox_confirmation(step, card, 1), waiting
    yield home_message(home(view, step)), home(view, step)
    yield ask_again_message("t"), None
    for reply in (value for value in vars(sample_views).values() if isinstance(value, Reply)):
        yield reply_message(reply), reply
    for form in (value for value in vars(sample_views).values() if isinstance(value, Form)):
        for begun in (True, False):
            yield form_offer(form, ACTION, begun=begun), form


ACTION = OpenDenyForm(ApprovalRef("a", 1))


def home(view: TurnView, step: ToolStep) -> Home:
    booking = next(step for step in sample_views.INQUIRED.steps if isinstance(step, ToolStep))
    inquiry = OpenElicitation(sample_views.INQUIRED.turn, booking, booking.elicitations[0])
    asked = [dataclasses.replace(view.turn, status=status, id=f"t{number}") for number, status in enumerate(TurnStatus)]
    calls = [PendingCall(view.turn, step)]
    return Home(NOW, calls, [inquiry], [*asked, *asked], sample_views.SERVERS, more_waiting=20, first_visit=True)


def shown_texts(payload: object) -> Iterator[str]:
    """Yield the texts in a payload, with the pieces of one paragraph joined."""
    match payload:
        case {"type": "rich_text_section", "elements": elements}:
            yield "".join(text for element in elements for text in shown_texts(element))
        case Mapping():
            for key, value in payload.items():
                if key in SHOWN and isinstance(value, str):
                    yield value
                else:
                    yield from shown_texts(value)
        case list() | tuple():
            for item in payload:
                yield from shown_texts(item)


def data_words(value: object) -> Iterator[str]:
    """Yield the words of all texts in a value."""
    match value:
        case str():
            yield from re.findall(r"[a-z]{2,}", value.lower())
        case Mapping():
            for name, inner in value.items():
                yield from data_words(name)
                yield from data_words(inner)
        case list() | tuple() | frozenset():
            for inner in value:
                yield from data_words(inner)
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from data_words(getattr(value, field.name))


def english(texts: Iterable[str], data: object) -> list[str]:
    """Return the words of texts that are neither translated nor data."""
    known = {*data_words(data), *SYNTAX}
    # A cut label lacks its closing brackets.
    whole = (text + "⟧" * max(text.count("⟦") - text.count("⟧"), 0) for text in texts)
    return [f"{word} ({text})" for text in whole for word in untranslated_words(text) if word.lower() not in known]


def slack_texts(view: TurnView) -> Iterator[str]:
    for message in message_blocks.turn_messages(view, NOW):
        yield from shown_texts(message.blocks)
    for remote in message_blocks.remote_cards(view, NOW, "https://x.slack.com"):
        yield from shown_texts(remote.message.blocks)
    for stream in streams(view):
        yield from (text for task in stream.tasks for text in (task.title, task.output))


def discord_texts(view: TurnView) -> Iterator[str]:
    for message in message_layout.turn_messages(view, NOW):
        yield message.content
        yield message.unattached
        yield from shown_texts(message.components)
    for remote in message_layout.remote_cards(view, NOW, direct=True):
        yield from shown_texts(remote.message.components)


@pytest.mark.parametrize("texts_of", [slack_texts, discord_texts])
def test_messages_of_turns_have_no_text_outside_of_the_catalogue(
    texts_of: Callable[[TurnView], Iterator[str]], pseudo_language: str
) -> None:
    faults: dict[str, None] = {}
    for view in turns():
        with use_language(pseudo_language):
            faults |= dict.fromkeys(english(texts_of(view), view))
    assert list(faults) == []


def test_lists_replies_and_home_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    faults: dict[str, None] = {}
    with use_language(pseudo_language):
        for message, data in messages():
            blocks = message_blocks.outgoing_message(message).blocks
            layout = message_layout.outgoing_message(message).components
            terminal = console_text(message.blocks, ConsoleTheme(colour=False, unicode=True), 100)
            texts = (*shown_texts(blocks), *shown_texts(layout), terminal)
            faults |= dict.fromkeys(english(texts, data))
    assert list(faults) == []


def test_forms_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    form, card = sample_views.ADDING, ApprovalRef("a", 1)
    confirmation = OpenConfirmation(("mcp", "remove"), "jira", "Jira")
    (step,) = (step for step in next(iter(cards())).steps if isinstance(step, ToolStep))
    with use_language(pseudo_language):
        payloads = [
            modals.form_to_modal(form, ""),
            modals.deny_modal(OpenDenyForm(card), ""),
            modals.confirm_modal(confirmation, ""),
            modals.call_modal(step),
            home_view(Home(NOW)),
            discord_modals.form_modal(form, "x").to_dict(),
            discord_modals.deny_modal("x").to_dict(),
            discord_modals.confirm_modal(confirmation, "x").to_dict(),
            discord_modals.question_modal(MessageRef("1", "2")).to_dict(),
        ]
        assert english(shown_texts(payloads), (form, confirmation, step)) == []
