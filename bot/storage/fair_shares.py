"""The order in which turns that wait are claimed: shared out among persons, then among workspaces, then by age."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that could run now. `created_at` is in epoch seconds."""

    id: str
    person: str
    workspace: str
    conversation: str
    created_at: float


@dataclass(slots=True)
class Loads:
    """How many turns run in all processes, by person and by workspace."""

    persons: Counter[str] = field(default_factory=Counter)
    workspaces: Counter[str] = field(default_factory=Counter)

    def add(self, person: str, workspace: str, running: int = 1) -> None:
        """Count turns that run."""
        self.persons[person] += running
        self.workspaces[workspace] += running


def choose_turns(
    waiting: Iterable[WaitingTurn], loads: Loads, *, most_running: int, places: int
) -> Sequence[WaitingTurn]:
    """Return the turns to claim, at most `places`, and count them in `loads`.

    The person with the fewest running turns goes first; among equals, the workspace with the fewest; then the oldest
    turn. A person with `most_running` gets no more.
    """
    queues: dict[str, list[WaitingTurn]] = defaultdict(list)
    for turn in sorted(waiting, key=_age, reverse=True):
        queues[turn.person].append(turn)
    chosen: list[WaitingTurn] = []
    while len(chosen) < places:
        heads = [queue[-1] for person, queue in queues.items() if queue and loads.persons[person] < most_running]
        if not heads:
            break
        turn = min(heads, key=lambda head: (loads.persons[head.person], loads.workspaces[head.workspace], *_age(head)))
        queues[turn.person].pop()
        loads.add(turn.person, turn.workspace)
        chosen.append(turn)
    return chosen


def _age(turn: WaitingTurn) -> tuple[float, str]:
    return turn.created_at, turn.conversation
