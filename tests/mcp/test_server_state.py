"""The state machine of one server: every pair of state and event, and the facts derived from a state."""

from __future__ import annotations

from itertools import product

import pytest

from bot.domain.metrics import SessionChanged
from bot.domain.servers import CachedCapabilities, ServerConfig, ServerStatus, StdioTransport
from bot.mcp.errors import Problem
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.status import (
    SESSION_EVENTS,
    TRANSITIONS,
    Event,
    IllegalTransition,
    ServerStatusTracker,
    State,
    next_state,
    status_of,
)

SHORT = {
    "conn": State.CONNECTING,
    "drop": State.DROPPED,
    "redy": State.READY,
    "susp": State.SUSPECT,
    "icls": State.IDLE_CLOSING,
    "lost": State.LOST,
    "endg": State.ENDING,
    "idle": State.IDLE,
    "back": State.BACKOFF,
    "exha": State.EXHAUSTED,
    "sign": State.SIGN_IN_REQUIRED,
    "clsd": State.CLOSED,
    "-": None,
}
EXPECTED = """
                  attempt other con'd  listd reqfd lost  unusd ended idlec retry exhau sign  closed
UNUSED            conn    -     -      -     -     -     -     -     -     -     -     -     clsd
DISCONNECTED      conn    -     -      -     -     -     -     -     -     -     -     -     clsd
CONNECTING        conn    conn  redy   conn  conn  drop  -     -     -     back  exha  sign  clsd
DROPPED           -       conn  lost   drop  drop  drop  -     -     -     back  exha  sign  clsd
READY             -       -     -      redy  susp  lost  icls  endg  -     -     -     -     clsd
SUSPECT           -       -     -      redy  susp  lost  icls  endg  -     -     -     -     clsd
IDLE_CLOSING      -       -     -      icls  icls  lost  icls  icls  idle  -     -     -     clsd
LOST              -       -     -      lost  lost  lost  lost  lost  -     back  exha  sign  clsd
ENDING            -       -     -      endg  endg  lost  endg  -     -     back  exha  sign  clsd
IDLE              conn    -     -      -     -     -     -     -     -     -     -     -     clsd
BACKOFF           conn    -     -      -     -     -     -     -     -     -     -     -     clsd
EXHAUSTED         conn    -     -      -     -     -     -     -     -     -     -     -     clsd
SIGN_IN_REQUIRED  conn    -     -      -     -     -     -     -     -     -     -     -     clsd
CLOSED            -       -     -      -     -     -     -     -     -     -     -     -     clsd
"""


def expected_states() -> dict[tuple[State, Event], State | None]:
    """Return the state after each pair, None for an impossible one."""
    rows = [line.split() for line in EXPECTED.strip().splitlines()[1:]]
    return {
        (State[name], event): SHORT[cell] for name, *cells in rows for event, cell in zip(Event, cells, strict=True)
    }


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)), ids=lambda value: value.name)
def test_every_pair_leads_to_one_state_or_is_an_error(state: State, event: Event) -> None:
    target = expected_states()[state, event]
    if target is not None:
        assert next_state(state, event) is target
        return
    with pytest.raises(IllegalTransition, match=f"{event.name} cannot happen in the state {state.name}"):
        next_state(state, event)


def test_every_state_is_reached_from_the_first_two() -> None:
    reached = {State.UNUSED, State.DISCONNECTED}
    while more := {target for (state, _), target in TRANSITIONS.items() if state in reached} - reached:
        reached |= more
    assert reached == set(State)


@pytest.mark.parametrize("known", [False, True])
def test_users_see_no_event_of_a_session(known: bool) -> None:
    for (state, event), target in TRANSITIONS.items():
        if event in SESSION_EVENTS:
            assert status_of(state, known=known) is status_of(target, known=known), (state, event)


def tracker(events: list[SessionChanged]) -> ServerStatusTracker:
    return ServerStatusTracker(
        ServerConfig("s", StdioTransport("python")),
        CachedCapabilities(),
        None,
        ConnectionDependencies(
            clock=lambda: 0.0,
            observe=lambda event: events.append(event) if isinstance(event, SessionChanged) else None,
        ),
        disconnected=False,
    )


def test_an_impossible_event_changes_nothing_and_is_an_error() -> None:
    events: list[SessionChanged] = []
    status = tracker(events)
    for impossible in (Event.IDLE_CLOSED, Event.RETRY_PLANNED):
        with pytest.raises(IllegalTransition):
            status.apply(impossible, Problem.without_quote("It broke."))
    with pytest.raises(IllegalTransition):
        status.report(Event.REQUEST_FAILED)
    with pytest.raises(AssertionError):
        status.report(Event.CLOSED)
    assert (status.state, status.problem, events) == (State.UNUSED, "", [])


def test_a_life_as_users_see_it() -> None:
    events: list[SessionChanged] = []
    status = tracker(events)
    seen = [status.status]
    status.apply(Event.ATTEMPT_STARTED)
    seen.append(status.status)
    status.apply(Event.RETRY_PLANNED, Problem.without_quote("It broke."))
    seen.append(status.status)
    status.apply(Event.ATTEMPT_STARTED)
    assert status.problem == "It broke."
    status.record_connection(status.synced.capabilities)
    seen.append(status.status)
    assert (status.problem, status.snapshot.connected_at is None) == ("", False)
    status.report(Event.CONNECTION_LOST)
    status.report(Event.SESSION_ENDED)
    seen.append(status.status)
    status.apply(Event.CLOSED)
    seen.append(status.status)
    assert seen == [
        ServerStatus.PENDING,
        ServerStatus.CONNECTING,
        ServerStatus.FAILED,
        ServerStatus.CONNECTED,
        ServerStatus.CONNECTED,
        ServerStatus.DISCONNECTED,
    ]
    assert [event.event for event in events] == ["error", "created", "closed"]
