"""Messages of the pictures, with the turns that answer them: Priya's message, the waiting turn, and its end.

A turn is Slack's, unless `sample_views.at` moves it to another conversation. Texts are in the current language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.chat.approval_inbox import PendingCall, PendingCalls, inbox_message
from bot.chat.message_model import Message
from bot.domain.approvals import Approver
from bot.domain.turns import Preview, StepStatus, ToolRef, ToolStep, Turn, TurnInput, TurnStatus, TurnView
from bot.i18n import current_language
from tests.platforms import sample_views


@dataclass(frozen=True, slots=True)
class Scene:
    """A question, the view of its turn, and the final view after `event`. Both views have the same first reply."""

    question: str
    view: TurnView
    event: str = ""
    end: TurnView | None = None


def working() -> Scene:
    """Return the scene of running tools."""
    return _scene(WHY, sample_views.WRITING)


def answer() -> Scene:
    """Return the scene of an answer from read-only tools."""
    return _scene(WHY, sample_views.ANSWERED)


def approval(approver: Approver) -> Scene:
    """Return the scene of a call that waits for this approver, and its result."""
    texts = _JAPANESE if current_language() == "ja" else _ENGLISH
    waiting = sample_views.a_view(
        sample_views.a_reply(0, texts["offer"]), _filing(StepStatus.AWAITING, texts), status=TurnStatus.WAITING
    )
    done = sample_views.a_view(
        sample_views.a_reply(0, texts["offer"]),
        _filing(StepStatus.DONE, texts, "OPS-512", **sample_views.SAM),
        sample_views.a_reply(4, texts["filed"]),
        status=TurnStatus.DONE,
    )
    return _scene(texts["question"], sample_views.with_approver(waiting, approver), texts["event"], done)


def approvals() -> Scene:
    """Return the scene of three waiting calls."""
    return _scene("file the 502s, link the pull request, and delete the duplicate OPS-17", sample_views.ASKED_THREE)


def deceptive_call() -> Scene:
    """Return the scene of a call whose arguments hide a text."""
    return _scene("install the deploy hook from the wiki page", sample_views.HIDDEN)


def previewed_call() -> Scene:
    """Return the scene of a call of a server that is not trusted, whose card shows what the call is about."""
    tool = ToolRef("wiki", "archive_page", server_id="w1", unknown=True)
    approval = sample_views.an_approval(3)
    step = sample_views.a_call(3, tool, StepStatus.AWAITING, arguments={"page": 41}, approval=approval)
    step = replace(step, preview=Preview("Deploys in 2024 · last changed by Sam, 14 Nov 2025 · 312 words"))
    view = sample_views.a_view(step, status=TurnStatus.WAITING)
    return _scene("archive the old page about deploys", view)


def inbox(turn: Turn = sample_views.ASKED.turn) -> Message:
    """Return the list of three calls of one tool that wait for the user."""
    calls = []
    for n, summary in enumerate(("502s", "Slow search", "Receipts"), 3):
        step = sample_views.a_filing(StepStatus.AWAITING, n=n)
        calls.append(replace(step, call=replace(step.call, arguments={"summary": summary})))
    waiting = tuple(PendingCall(turn, step) for step in calls)
    return inbox_message(PendingCalls(waiting, len(waiting)), 1, sample_views.NOW)


def inquiry() -> Scene:
    """Return the scene of a server that asks Priya, and the result of the call."""
    end = sample_views.a_view(
        sample_views.a_reply(0, "I book the train."),
        sample_views.a_booking(
            StepStatus.DONE,
            sample_views.asked_back(reply=sample_views.YES, answered_by="Priya"),
            result="Booked: K7P2",
        ),
        sample_views.a_reply(4, "You have two seats in second class on the 14:05 to Leeds. The reference is `K7P2`."),
        status=TurnStatus.DONE,
    )
    return _scene("book us on the 14:05 to Leeds", sample_views.INQUIRED, "Priya answers", end)


WHY = "why did checkout 502 after the deploy?"
_DEPLOY = "a81f3c2"
_ENGLISH: Mapping[str, str] = {
    "question": "please file the checkout 502s in Jira, with high priority",
    "offer": "The 502s began with the 14:05 deploy. I file them in OPS once that is approved.",
    "summary": "Checkout 502s after the 14:05 deploy",
    "description": (
        f"Since deploy {_DEPLOY} at 14:05, one checkout request in thirty has failed with a 502. "
        "The payments pool went from 200 connections to 20."
    ),
    "event": "Sam approves",
    "filed": "Filed as [OPS-512](https://jira.example/OPS-512), with high priority.",
}
_JAPANESE: Mapping[str, str] = {
    "question": "チェックアウトの502をJiraに登録して。優先度はHighで",
    "offer": "502は14:05のデプロイから始まっています。承認されたらOPSに登録します。",
    "summary": "14:05のデプロイ後、チェックアウトで502",
    "description": (
        f"14:05のデプロイ {_DEPLOY} 以降、チェックアウトのリクエスト30件に1件が502になっています。"
        "paymentsプールの接続数が200から20に減りました。"
    ),
    "event": "Samが承認",
    "filed": "[OPS-512](https://jira.example/OPS-512) として、優先度Highで登録しました。",
}


def _scene(question: str, view: TurnView, event: str = "", end: TurnView | None = None) -> Scene:
    return Scene(question, _asked(question, view), event, None if end is None else _asked(question, end))


def _asked(question: str, view: TurnView) -> TurnView:
    return replace(view, turn=replace(view.turn, question=TurnInput(question)))


def _filing(status: StepStatus, texts: Mapping[str, str], result: str = "", **changes: Any) -> ToolStep:
    step = sample_views.a_filing(status, result, **changes)
    arguments = {
        "project": "OPS",
        "summary": texts["summary"],
        "priority": "High",
        "description": texts["description"],
    }
    return replace(step, call=replace(step.call, arguments=arguments))
