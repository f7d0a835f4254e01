"""Life of one server: its states, the events that change them, and the table of all transitions.

`next_state` is the only way from one state to another, and `ServerStatusTracker` calls it. The owner task of the
connection reports attempts, sessions and their ends. Calls, the health check and the transport report `SESSION_EVENTS`
about the live session. These take effect at once, so that the call that reports a loss is not sent on the same session
again. Everything else about a connection is derived from its state.
"""

from __future__ import annotations

from enum import Enum, auto

from bot.domain.servers import ServerStatus


class State(Enum):
    """State of one server."""

    UNUSED = auto()
    """No attempt to connect has begun."""
    DISCONNECTED = auto()
    """An admin has disconnected it: only an admin connects it."""
    CONNECTING = auto()
    DROPPED = auto()
    """The other side has closed the connection before it was established."""
    READY = auto()
    """Requests may be sent."""
    SUSPECT = auto()
    """A request has failed: calls wait until the tools have been listed again."""
    IDLE_CLOSING = auto()
    """The session is being closed, because the server is unused."""
    LOST = auto()
    """The other side has closed an established connection, or a call has found it unusable."""
    ENDING = auto()
    """The session is being closed, by request or after an error."""
    IDLE = auto()
    """The session was closed, because the server was unused: the next use connects."""
    BACKOFF = auto()
    """An attempt has failed, or a connection was lost: the next attempt is planned."""
    EXHAUSTED = auto()
    """No attempts are left: the next use starts one."""
    SIGN_IN_REQUIRED = auto()
    """The server has rejected the bot: calls do not connect. An attempt is planned, and a sign-in starts one."""
    CLOSED = auto()
    """The owner task has ended."""


class Event(Enum):
    """Event in the life of one server."""

    ATTEMPT_STARTED = auto()
    ATTEMPT_REPEATED = auto()
    """The attempt has failed, and goes on: with the older transport, or once more."""
    CONNECTED = auto()
    """The server has answered, and its tools are listed."""
    TOOLS_LISTED = auto()
    REQUEST_FAILED = auto()
    """A request has failed in a way that may be the end of the connection."""
    CONNECTION_LOST = auto()
    UNUSED_TOO_LONG = auto()
    SESSION_ENDED = auto()
    """The owner task begins to close the client."""
    IDLE_CLOSED = auto()
    RETRY_PLANNED = auto()
    RETRIES_EXHAUSTED = auto()
    SIGN_IN_REJECTED = auto()
    CLOSED = auto()


SESSION_EVENTS = frozenset((Event.TOOLS_LISTED, Event.REQUEST_FAILED, Event.CONNECTION_LOST, Event.UNUSED_TOO_LONG))
"""Events of a live session, which any task may report."""

ESTABLISHED = frozenset((State.READY, State.SUSPECT, State.IDLE_CLOSING, State.LOST, State.ENDING))
"""States of a session between its first listing and its end."""

_ATTEMPTING = (State.CONNECTING, State.DROPPED)
_WAITING = (
    State.UNUSED,
    State.DISCONNECTED,
    State.IDLE,
    State.BACKOFF,
    State.EXHAUSTED,
    State.SIGN_IN_REQUIRED,
)
"""States without a session. The owner task may not have started."""

TRANSITIONS: dict[tuple[State, Event], State] = {
    **{(state, Event.ATTEMPT_STARTED): State.CONNECTING for state in (*_WAITING, State.CONNECTING)},
    **{(state, Event.ATTEMPT_REPEATED): State.CONNECTING for state in _ATTEMPTING},
    (State.CONNECTING, Event.TOOLS_LISTED): State.CONNECTING,
    (State.CONNECTING, Event.REQUEST_FAILED): State.CONNECTING,
    (State.CONNECTING, Event.CONNECTION_LOST): State.DROPPED,
    (State.CONNECTING, Event.CONNECTED): State.READY,
    (State.DROPPED, Event.TOOLS_LISTED): State.DROPPED,
    (State.DROPPED, Event.REQUEST_FAILED): State.DROPPED,
    (State.DROPPED, Event.CONNECTION_LOST): State.DROPPED,
    (State.DROPPED, Event.CONNECTED): State.LOST,
    (State.READY, Event.TOOLS_LISTED): State.READY,
    (State.READY, Event.REQUEST_FAILED): State.SUSPECT,
    (State.READY, Event.CONNECTION_LOST): State.LOST,
    (State.READY, Event.UNUSED_TOO_LONG): State.IDLE_CLOSING,
    (State.READY, Event.SESSION_ENDED): State.ENDING,
    (State.SUSPECT, Event.TOOLS_LISTED): State.READY,
    (State.SUSPECT, Event.REQUEST_FAILED): State.SUSPECT,
    (State.SUSPECT, Event.CONNECTION_LOST): State.LOST,
    (State.SUSPECT, Event.UNUSED_TOO_LONG): State.IDLE_CLOSING,
    (State.SUSPECT, Event.SESSION_ENDED): State.ENDING,
    # A loss while the client is closed counts as a loss: the server may have failed.
    **{(state, Event.CONNECTION_LOST): State.LOST for state in (State.IDLE_CLOSING, State.LOST, State.ENDING)},
    **{
        (state, event): state
        for state in (State.IDLE_CLOSING, State.LOST, State.ENDING)
        for event in (Event.TOOLS_LISTED, Event.REQUEST_FAILED, Event.UNUSED_TOO_LONG)
    },
    (State.IDLE_CLOSING, Event.SESSION_ENDED): State.IDLE_CLOSING,
    (State.LOST, Event.SESSION_ENDED): State.LOST,
    (State.IDLE_CLOSING, Event.IDLE_CLOSED): State.IDLE,
    **{
        (state, event): target
        for state in (*_ATTEMPTING, State.LOST, State.ENDING)
        for event, target in (
            (Event.RETRY_PLANNED, State.BACKOFF),
            (Event.RETRIES_EXHAUSTED, State.EXHAUSTED),
            (Event.SIGN_IN_REJECTED, State.SIGN_IN_REQUIRED),
        )
    },
    **dict.fromkeys(((state, Event.CLOSED) for state in State), State.CLOSED),
}
"""State after each event. A pair that is missing cannot happen."""


_STATUS: dict[State, ServerStatus] = {
    State.UNUSED: ServerStatus.PENDING,
    State.IDLE: ServerStatus.IDLE,
    **dict.fromkeys(_ATTEMPTING, ServerStatus.CONNECTING),
    **dict.fromkeys(ESTABLISHED, ServerStatus.CONNECTED),
    State.BACKOFF: ServerStatus.FAILED,
    State.EXHAUSTED: ServerStatus.FAILED,
    State.SIGN_IN_REQUIRED: ServerStatus.AUTH_REQUIRED,
    State.DISCONNECTED: ServerStatus.DISCONNECTED,
    State.CLOSED: ServerStatus.DISCONNECTED,
}


class IllegalTransition(Exception):
    """Event that cannot happen in this state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.name} cannot happen in the state {state.name}")


def next_state(state: State, event: Event) -> State:
    """Return the state after an event. Raises IllegalTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def status_of(state: State, *, known: bool) -> ServerStatus:
    """Return the status that users see. `known`: the capabilities have been fetched at least once."""
    if state is State.UNUSED and known:
        return ServerStatus.IDLE
    return _STATUS[state]


def can_send(state: State) -> bool:
    """Return True if requests may be sent."""
    return state is State.READY


def can_connect_for_call(state: State) -> bool:
    """Return True if a call may connect the server, or wait for its connection."""
    return state not in (State.SIGN_IN_REQUIRED, State.DISCONNECTED, State.CLOSED)


def has_session(state: State) -> bool:
    """Return True if there is a session, or an attempt to make one."""
    return state in (*_ATTEMPTING, *ESTABLISHED)


def is_before_first_session(state: State) -> bool:
    """Return True until the first session is established. Also True during a later attempt."""
    return state in (State.UNUSED, State.CONNECTING, State.DROPPED)


def is_serving(state: State) -> bool:
    """Return True while the owner task keeps an established session."""
    return state in (State.READY, State.SUSPECT)


def is_session_over(state: State) -> bool:
    """Return True if the session has ended, or is about to."""
    return state in (State.DROPPED, State.IDLE_CLOSING, State.LOST, State.ENDING)


def is_doubtful(state: State) -> bool:
    """Return True if an established session has failed, or may have."""
    return state in (State.SUSPECT, State.LOST, State.ENDING)


def was_lost(state: State) -> bool:
    """Return True if the other side has closed the connection."""
    return state in (State.DROPPED, State.LOST)


def hides_tools(state: State) -> bool:
    """Return True if the tools are not offered until the next connection."""
    return state in (State.SIGN_IN_REQUIRED, State.DISCONNECTED, State.CLOSED)
