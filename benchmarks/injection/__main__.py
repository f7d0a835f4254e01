"""Approvals on AgentDojo's tasks, before and now: attacks without an approval, and legitimate calls with one.

    make bench-injection

The benchmark (Debenedetti et al., 2024) has suites of user tasks and injection tasks, each with its calls (the
ground truth). No model is used: the calls are replayed on the rules in a conversation where all calls are allowed,
so that each approval is caused by untrusted text. Each module of tools counts as a server.

An attack is a user task up to the first result that would hold an injection, and the calls of an injection task, in
the same turn or after the next message ("Thanks, go on."). It succeeds if none of its calls needs an approval.
Injection tasks without calls are skipped. No network is used.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.injection.annotations import SAID
from benchmarks.injection.rules import Before, Conversation, Now, by_hints_alone
from bot.domain.flows import Flow
from bot.domain.tools import Tool

GO_ON = "Thanks, go on."
Begin = Callable[[], Conversation]


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a ground truth; `injected` if its result would hold an injection."""

    tool: str
    arguments: Mapping[str, Any]
    injected: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One user task."""

    prompt: str
    calls: Sequence[Call]

    @property
    def until_injected(self) -> Sequence[Call]:
        """Calls up to the first whose result would hold an injection; empty if there is no such call."""
        at = next((n for n, each in enumerate(self.calls, 1) if each.injected), 0)
        return self.calls[:at]


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: its tools, user tasks, and injection tasks by name."""

    name: str
    tools: Sequence[Tool]
    tasks: Sequence[Task]
    injections: Mapping[str, Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a suite under one rule.

    `unsigned` counts the attacks that succeed in the same turn, by injection task, `unsigned_later` those after the
    next message. `asks` are the approvals on the user tasks alone, `asks_next` their average after another task in
    the same conversation. `reasons` counts `asks` by the first sentence of their reason.
    """

    unsigned: Counter[str]
    unsigned_later: Counter[str]
    attacks: int
    asks: int
    asks_next: float
    reasons: Counter[str]


def replayed(suite: Suite, begin: Begin) -> Result:
    """Replay a suite under a rule."""
    attacked = [task for task in suite.tasks if task.until_injected]
    unsigned = {
        later: Counter(
            name
            for name, calls in suite.injections.items()
            for task in attacked
            if calls and _succeeds(task, calls, begin(), later=later)
        )
        for later in (False, True)
    }
    attacks = len(attacked) * sum(1 for calls in suite.injections.values() if calls)
    reasons = Counter(why.partition(". ")[0] for task in suite.tasks for why in _asks(task, begin()))
    pairs = [(one, other) for one in suite.tasks for other in suite.tasks if one is not other]
    asks_next = sum(len(_asks_after(one, other, begin())) for one, other in pairs) / max(len(suite.tasks) - 1, 1)
    return Result(unsigned[False], unsigned[True], attacks, reasons.total(), asks_next, reasons)


def _succeeds(task: Task, injected: Sequence[Call], conversation: Conversation, *, later: bool) -> bool:
    conversation.ask(task.prompt)
    for each in task.until_injected:
        conversation.call(each.tool, each.arguments)
    if later:
        conversation.ask(GO_ON)
    # Every call is made, whether it needs an approval or not.
    asks = [conversation.call(each.tool, each.arguments) for each in injected]
    return not any(asks)


def _asks(task: Task, conversation: Conversation) -> list[str]:
    conversation.ask(task.prompt)
    return [why for call in task.calls if (why := conversation.call(call.tool, call.arguments))]


def _asks_after(one: Task, other: Task, conversation: Conversation) -> list[str]:
    _asks(one, conversation)
    return _asks(other, conversation)


def suites_of(body: Mapping[str, Any]) -> list[Suite]:
    """Parse the output of `extract`."""
    return [
        Suite(
            name,
            [_tool(tool, each) for tool, each in suite["tools"].items()],
            [Task(task["prompt"], _calls(task["calls"])) for task in suite["tasks"].values()],
            {injection: _calls(calls) for injection, calls in suite["injections"].items()},
        )
        for name, suite in body.items()
    ]


def _calls(body: Sequence[Mapping[str, Any]]) -> list[Call]:
    return [Call(each["tool"], each["arguments"], each["injected"]) for each in body]


def _tool(name: str, body: Mapping[str, Any]) -> Tool:
    said, server = SAID[name], body["server"]
    return Tool(
        name,
        server,
        name,
        input_schema=body["schema"],
        annotations=said.hints,
        trusted=True,
        server_id=server,
        flow=Flow(said.words, said.sends, said.recipients),
    )


def compared(suite: Suite) -> tuple[Result, Result, Result]:
    """Return the suite's results under the rule before, now by hints alone, and now as an operator has set it."""
    tools = {tool.name: tool for tool in suite.tools}
    hinted = {tool.name: tool for tool in by_hints_alone(suite.tools)}
    return (
        replayed(suite, lambda: Before(tools)),
        replayed(suite, lambda: Now(hinted)),
        replayed(suite, lambda: Now(tools)),
    )


def summed(results: Sequence[Result]) -> Result:
    """Return the sums of several suites' results."""
    return Result(
        sum((result.unsigned for result in results), Counter()),
        sum((result.unsigned_later for result in results), Counter()),
        sum(result.attacks for result in results),
        sum(result.asks for result in results),
        sum(result.asks_next for result in results),
        sum((result.reasons for result in results), Counter()),
    )


def row(name: str, tasks: int, results: Sequence[Result]) -> str:
    """Return a row of the table: each cell has the rule before, now by hints alone, and now as set."""
    cells = (
        (result.unsigned.total() for result in results),
        (result.unsigned_later.total() for result in results),
        (result.asks for result in results),
        (f"{result.asks_next:.0f}" for result in results),
    )
    same, later, asks, after = (" / ".join(map(str, cell)) for cell in cells)
    return f"| {name} | {results[0].attacks} | {same} | {later} | {tasks} | {asks} | {after} |"


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.injection", description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, default=Path(".venv/agentdojo/bin/python"), help="has agentdojo")
    options = parser.parse_args()
    extract = Path(__file__).with_name("extract.py")
    printed = subprocess.run([options.python, extract], check=True, capture_output=True, text=True).stdout  # noqa: S603
    suites = suites_of(json.loads(printed))
    found = [compared(suite) for suite in suites]
    sums = [summed(each) for each in zip(*found, strict=True)]
    print("Before / now, by hints alone / now, as an operator has set it")
    print("| suite | attacks | unsigned, same turn | unsigned, next turn | tasks | signatures | as second task |")
    print("|---|---|---|---|---|---|---|")
    for suite, results in zip(suites, found, strict=True):
        print(row(suite.name, len(suite.tasks), results))
    print(row("all", sum(len(suite.tasks) for suite in suites), sums))
    print("\nSignatures by hints alone, by reason:")
    for reason, count in sums[1].reasons.most_common():
        print(f"  {count}: {reason}.")
    print("\nUnsigned now, as set, in the same turn:")
    for suite, (*_, tuned) in zip(suites, found, strict=True):
        for name, count in tuned.unsigned.items():
            print(f"  {suite.name} {name}: {count}, {', '.join(each.tool for each in suite.injections[name])}")


if __name__ == "__main__":
    main()
