"""Steps of a setup, and running them with a person at the terminal or for a script."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

from bot.errors import CountersignError, SettingsError
from bot.platforms.console.prompts import SetupTerminal
from bot.rendering.text_safety import single_line, strip_control

_LONGEST = 400


class StepStatus(Enum):
    """Status of a step."""

    DONE = "done"
    OPEN = "open"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class StepState:
    """State of a step: `detail` says what is set up, or is the cause of an error with its `fix`."""

    status: StepStatus
    detail: str = ""
    fix: str = ""


OPEN = StepState(StepStatus.OPEN)


def done_state(detail: str) -> StepState:
    """Return the state of a step that is set up."""
    return StepState(StepStatus.DONE, detail)


def wrong_state(cause: str, fix: str = "") -> StepState:
    """Return the state of a step whose values do not work."""
    return StepState(StepStatus.WRONG, cause, fix)


def error_state(error: CountersignError) -> StepState:
    """Return the state of a step that could not be inspected."""
    return wrong_state(str(error.detailed_cause), str(error.fix))


def form_error(text: str, forms: Iterable[tuple[str, str, str]]) -> SettingsError | None:
    """Return the error of the first form that matches the text, None without a match. Each form is a regular
    expression, a cause and a fix.
    """
    for pattern, cause, fix in forms:
        if re.fullmatch(pattern, text, re.DOTALL):
            return SettingsError(cause, fix)
    return None


class Step(ABC):
    """One step. `name` is its value of --redo, `title` its heading."""

    name: str
    title: str

    @abstractmethod
    async def inspect(self) -> StepState:
        """Return the state. Changes and posts nothing."""

    @abstractmethod
    async def guide(self) -> Sequence[str]:
        """Return instructions for `--print`: pages to open, variables to set."""

    @abstractmethod
    async def ask(self, terminal: SetupTerminal) -> None:
        """Do the step with a person at the terminal. It is repeated after a CountersignError."""

    async def is_confirmed(self) -> bool:
        """Return False if a person has to confirm the step although its state is DONE."""
        return True

    async def apply(self) -> None:
        """Do the parts that need no person. Raises CountersignError."""
        return


async def run_steps(terminal: SetupTerminal, steps: Sequence[Step], redo: str) -> bool:
    """Run the open steps and the step `redo` with a person. Return True if any ran."""
    has_run = False
    for number, step in enumerate(steps, start=1):
        terminal.heading(number, len(steps), step.title)
        state = await _inspect(step)
        if state.status is StepStatus.DONE and step.name != redo and await step.is_confirmed():
            terminal.report_done(single_line(state.detail, _LONGEST))
            continue
        if state.status is StepStatus.WRONG:
            terminal.report_error(single_line(state.detail, _LONGEST), single_line(state.fix, _LONGEST))
        has_run = True
        await retry_until_done(terminal, lambda step=step: step.ask(terminal))  # type: ignore[misc]
    return has_run


async def retry_until_done(terminal: SetupTerminal, action: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action until it raises no CountersignError. Each error is reported with its fix."""
    while True:
        questions = terminal.questions
        try:
            await action()
        except CountersignError as error:
            terminal.report_error(
                single_line(str(error.detailed_cause), _LONGEST), single_line(str(error.fix), _LONGEST)
            )
            if terminal.questions == questions:
                await terminal.wait_for_enter("Press Enter to try again")
        else:
            return


@dataclass(frozen=True, slots=True)
class PrintedStep:
    """A step as it is printed."""

    subject: str
    name: str
    title: str
    state: StepState
    guide: tuple[str, ...] = ()


async def print_steps(
    out: TextIO, subject: str, steps: Sequence[Step], *, write: bool, as_json: bool
) -> Sequence[StepStatus]:
    """Print every step with its state and instructions; with `write`, apply it first. Return the statuses."""
    statuses = []
    for number, step in enumerate(steps, start=1):
        state = await _inspect(step)
        if write and state.status is not StepStatus.WRONG:
            state = await _apply(step)
        guide = tuple(map(strip_control, await step.guide())) if state.status is not StepStatus.DONE else ()
        printed = PrintedStep(subject, step.name, step.title, state, guide)
        out.write(f"{_as_json(printed) if as_json else _as_text(printed, number, len(steps))}\n")
        out.flush()
        statuses.append(state.status)
    return statuses


async def _inspect(step: Step) -> StepState:
    try:
        return await step.inspect()
    except CountersignError as error:
        return error_state(error)


async def _apply(step: Step) -> StepState:
    try:
        await step.apply()
        return await step.inspect()
    except CountersignError as error:
        return error_state(error)


def _as_json(step: PrintedStep) -> str:
    return json.dumps(
        {
            "subject": step.subject,
            "step": step.name,
            "title": step.title,
            "status": step.state.status.value,
            "detail": single_line(step.state.detail, _LONGEST),
            "fix": single_line(step.state.fix, _LONGEST),
            "guide": [line for line in step.guide if line],
        },
        ensure_ascii=False,
    )


def _as_text(step: PrintedStep, number: int, count: int) -> str:
    lines = [f"[{number}/{count}] {step.title}"]
    detail, fix = single_line(step.state.detail, _LONGEST), single_line(step.state.fix, _LONGEST)
    match step.state.status:
        case StepStatus.DONE:
            lines.append(f"  ✓ {detail}")
        case StepStatus.WRONG:
            lines += [f"  ✗ {detail}", *([f"    Fix: {fix}"] if fix else [])]
        case StepStatus.OPEN:
            lines.append(f"  - {detail or 'To do.'}")
    lines += [f"  {line}".rstrip() for line in step.guide]
    return "\n".join([*lines, ""])


def exit_code(statuses: Sequence[StepStatus]) -> int:
    """Return 0 if everything is done, 1 if something is wrong, and 4 if steps are left."""
    if StepStatus.WRONG in statuses:
        return 1
    return 4 if StepStatus.OPEN in statuses else 0
