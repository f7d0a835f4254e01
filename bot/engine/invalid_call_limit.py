"""How often a model may correct calls that it has written wrongly: of a tool that there is not, or with arguments that
cannot be read or do not fit.

Called by `turn_runner`. Each such call is told to the model, which mostly does better at once. One that does not would
go on until the rounds are used up, at somebody's cost.
"""

from __future__ import annotations

from itertools import takewhile

from bot.domain.tools import MISFIT
from bot.domain.turns import ModelStep, StepStatus, ToolStep, TurnRecord
from bot.engine.builtin_tools.read_result import is_read_result_step
from bot.engine.builtin_tools.search_steps import is_searching

MOST_CORRECTIONS = 2
GAVE_UP = "Stopped using tools: the model went on asking for calls that cannot be made."


def exceeds_invalid_calls(record: TurnRecord) -> bool:
    """Whether the model has asked for nothing but calls that are none, and has corrected itself in vain as often as it
    may: in its last replies, one after the other.
    """
    rounds: list[list[ToolStep]] = []
    for step in record.steps:
        match step:
            case ModelStep():
                rounds.append([])
            case ToolStep() if rounds:  # those before the first reply are not the model's
                rounds[-1].append(step)
            case _:
                pass
    failed = takewhile(lambda calls: calls and all(map(_is_none, calls)), reversed(rounds))
    return sum(1 for _ in failed) > MOST_CORRECTIONS


def _is_none(step: ToolStep) -> bool:
    if step.status is not StepStatus.FAILED:
        return False
    if step.tool is None or step.call.unreadable or is_read_result_step(step) or is_searching(step):
        return True  # those of the bot's own fail for what is asked of them alone
    return step.result is not None and step.result.text.startswith(MISFIT)
