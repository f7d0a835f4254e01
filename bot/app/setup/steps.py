"""Steps of a setup: what each looks at, asks for and does, and how they are run with a person or without one."""

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
from bot.rendering.text_safety import single_line

_LONGEST = 400


class StepStatus(Enum):
    """What a look at a step finds."""

    DONE = "done"
    OPEN = "open"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class StepState:
    """Result of a look: what is there, or what is wrong and how to correct it."""

    status: StepStatus
    detail: str = ""
    fix: str = ""


OPEN = StepState(StepStatus.OPEN)


def done(detail: str) -> StepState:
    """Return the state of a step that needs nothing any more."""
    return StepState(StepStatus.DONE, detail)


def wrong(cause: str, fix: str = "") -> StepState:
    """Return the state of a step whose values do not work."""
    return StepState(StepStatus.WRONG, cause, fix)


def of_error(error: CountersignError) -> StepState:
    """Return the state of a step whose look failed."""
    return wrong(str(error.detailed_cause), str(error.fix))


def form_error(text: str, kinds: Iterable[tuple[str, str, str]]) -> SettingsError | None:
    """Return the error of the first kind that a text has the form of, None if it has none. Each kind is a regular
    expression, a cause and a fix.
    """
    for pattern, cause, fix in kinds:
        if re.fullmatch(pattern, text, re.DOTALL):
            return SettingsError(cause, fix)
    return None


class Step(ABC):
    """One step. `name` is what options call it, `title` what people read."""

    name: str
    title: str

    @abstractmethod
    async def look(self) -> StepState:
        """Return what is there. Changes and posts nothing."""

    @abstractmethod
    async def guide(self) -> Sequence[str]:
        """Return what is to be opened, done and set, as lines for `--print`."""

    @abstractmethod
    async def ask(self, terminal: SetupTerminal) -> None:
        """Do the step with a person at the terminal. Raises CountersignError, which is told before it asks again."""

    async def is_confirmed(self) -> bool:
        """Return False if a person should look at what is there before it counts as done."""
        return True

    async def apply(self) -> None:
        """Do what can be done without a person. Raises CountersignError."""
        return


async def run_steps(terminal: SetupTerminal, steps: Sequence[Step], again: str, *, more: int = 1) -> bool:
    """Run the steps with a person; the step that `again` names also if it is done. `more` steps follow. Return True if
    anything was to do.
    """
    worked = False
    for number, step in enumerate(steps, start=1):
        terminal.heading(number, len(steps) + more, step.title)
        state = await _look(step)
        if state.status is StepStatus.DONE and step.name != again and await step.is_confirmed():
            terminal.done(single_line(state.detail, _LONGEST))
            continue
        if state.status is StepStatus.WRONG:
            terminal.wrong(single_line(state.detail, _LONGEST), single_line(state.fix, _LONGEST))
        worked = True
        await until_it_works(terminal, lambda step=step: step.ask(terminal))  # type: ignore[misc]
    return worked


async def until_it_works(terminal: SetupTerminal, action: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action until it raises no error; each error is told with its fix."""
    while True:
        asked = terminal.questions
        try:
            await action()
        except CountersignError as error:
            terminal.wrong(single_line(str(error.detailed_cause), _LONGEST), single_line(str(error.fix), _LONGEST))
            if terminal.questions == asked:
                await terminal.wait_for_enter("Press Enter to try again")
        else:
            return


@dataclass(frozen=True, slots=True)
class PrintedStep:
    """Result of one step without a person."""

    subject: str
    name: str
    title: str
    state: StepState
    guide: tuple[str, ...] = ()


async def print_steps(
    out: TextIO, subject: str, steps: Sequence[Step], *, write: bool, as_json: bool
) -> Sequence[StepStatus]:
    """Print every step with its state and what is to do; with `write`, do what can be done without a person first.
    Return the states.
    """
    states = []
    for number, step in enumerate(steps, start=1):
        state = await _look(step)
        if write and state.status is not StepStatus.WRONG:
            state = await _applied(step)
        guide = tuple(await step.guide()) if state.status is not StepStatus.DONE else ()
        printed = PrintedStep(subject, step.name, step.title, state, guide)
        out.write(f"{_as_json(printed) if as_json else _as_text(printed, number, len(steps) + 1)}\n")
        out.flush()
        states.append(state.status)
    return states


async def _look(step: Step) -> StepState:
    try:
        return await step.look()
    except CountersignError as error:
        return of_error(error)


async def _applied(step: Step) -> StepState:
    try:
        await step.apply()
        return await step.look()
    except CountersignError as error:
        return of_error(error)


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


def exit_code(states: Sequence[StepStatus]) -> int:
    """Return 0 if everything is done, 1 if something is wrong, and 4 if steps are left."""
    if StepStatus.WRONG in states:
        return 1
    return 4 if StepStatus.OPEN in states else 0
