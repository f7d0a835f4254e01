"""What is said in private where nothing else can be said: the end of a turn that can never be drawn where it was asked.

Called by whoever draws, once a drawing has been given up. What is drawn in the conversation after all, such as a call
that was turned down because its card could not be posted, needs no words beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from bot.domain.turns import Step, StepStatus, ToolStep, TurnStatus
from bot.domain.views import Notice, NoticeTarget, TurnView
from bot.errors import DeliveryFailed
from bot.ports import Surface

log = logging.getLogger(__name__)

TELL_SECONDS = 30.0
QUESTION_LIMIT = 200
REMEMBERED = 1000

UNANSWERED = "I could not answer you where you asked “{question}”. {cause}"
NOT_RUN = "What needed an approval there was not run."


class UndeliverableNotices:
    """Tells whoever asked, once a turn as far as this process knows, and at the first try or never."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, None] = OrderedDict()

    async def notify_author(self, surface: Surface, view: TurnView, failure: DeliveryFailed) -> None:
        """The drawing of this view was given up. Never raises: there is nobody left to tell."""
        turn = view.turn
        # Whoever has stopped a turn waits for no answer.
        if turn.status not in (TurnStatus.DONE, TurnStatus.FAILED) or turn.id in self._told:
            return
        self._told[turn.id] = None
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        audience = NoticeTarget(str(turn.conversation), turn.author.id, private=True)
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await surface.post_notice(audience, Notice(_words(view, failure)))
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("who asked for turn %s could not be told that it cannot be shown: %s", turn.id, error)
        except Exception:  # a surface's bug must not take the drawing along
            log.exception("who asked for turn %s could not be told that it cannot be shown", turn.id)


def _words(view: TurnView, failure: DeliveryFailed) -> str:
    question = " ".join(view.turn.question.text.split())
    if len(question) > QUESTION_LIMIT:
        question = question[: QUESTION_LIMIT - 1].rstrip() + "…"
    said = UNANSWERED.format(question=question, cause=failure.cause)
    return f"{said} {NOT_RUN}" if any(map(_unshown, view.steps)) else said


def _unshown(step: Step) -> bool:
    """Whether a call was turned down by nobody: its card could not be posted."""
    return (
        isinstance(step, ToolStep)
        and step.status is StepStatus.DENIED
        and step.approval is not None
        and not step.approval.decided_by
    )
