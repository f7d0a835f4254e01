"""The errors that somebody handles differently, and nothing else.

    CountersignError              anything this program raises on purpose: a cause and a fix
    ├── SettingsError             the environment or a configuration file says something that cannot be used
    ├── DatabaseError             the database cannot be used at all
    │   ├── DatabaseUnavailable   for now: away, restarting, locked
    │   │   └── DatabaseUnwritable  the same: it answers, and takes no writes
    │   └── DatabaseHeld          another process claims turns on this SQLite file
    ├── NotFound                  what was named does not exist, or is not this person's to see
    ├── Conflict                  what was to be changed is not what it was any more, or a name is taken
    ├── SecretUnavailable         a secret cannot be opened or read: wrong key, missing variable or file
    ├── QueueFull                 a message was not accepted: too many of its author's are queued
    ├── ServerTrouble             an MCP server did not do what an admin asked of it
    ├── ModelError                the language model gave no answer
    │   ├── ModelUnavailable      for now: busy, unreachable, cut off; `retry_after` seconds if it said so
    │   ├── LimitReached          it was not asked: a limit on tokens or money is used up
    │   └── ModelRejected         for good: key, model name or request refused, perhaps for one `tool`
    │       ├── ContextTooLong    what was sent does not fit in: the same conversation, made shorter, would
    │       │   └── SmallerWindow another model would answer, and takes less: what is sent is to be made for that one
    │       └── ModelBarred       its service lets the bot in no more: another model would answer
    ├── DeliveryFailed            a platform did not take a drawing; `retry_after` seconds, or `permanent`
    └── TurnInterrupted           the turn is no longer this task's to drive
        ├── LostLease             another process owns it now: write nothing
        └── Stopped               a person stopped it: start nothing new

A failing tool is not an error but a result that the model reads. Vendor errors stop at their adapter and are
chained as causes. Messages are for people: never a secret, never a traceback.
"""

from __future__ import annotations


class CountersignError(Exception):
    """Something went wrong and a person can do something about it.

    `cause` is one sentence that says what happened, `fix` one that says what to do (may be empty).
    """

    def __init__(self, cause: str, fix: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix

    @property
    def detailed_cause(self) -> str:
        """The cause for operators."""
        return self.cause

    def __str__(self) -> str:
        return f"{self.detailed_cause} Fix: {self.fix}" if self.fix else self.detailed_cause


class SettingsError(CountersignError):
    """The environment or a configuration file holds something that cannot be used."""


class DatabaseError(CountersignError):
    """The database cannot be used at all."""


class DatabaseUnavailable(DatabaseError):
    """The database is away for now: gone, restarting, locked."""


class DatabaseUnwritable(DatabaseUnavailable):
    """The database answers and takes no writes. `reason` says why, without its name: such as "its disk is full"."""

    def __init__(self, cause: str, fix: str = "", *, reason: str) -> None:
        super().__init__(cause, fix)
        self.reason = reason


class DatabaseHeld(DatabaseError):
    """Another process claims turns on this SQLite file."""


class NotFound(CountersignError):
    """The entity is missing, or hidden from this user."""


class Conflict(CountersignError):
    """The entity was changed meanwhile, or a name is taken. `field` is the one with the error."""

    def __init__(self, cause: str, fix: str = "", *, field: str = "") -> None:
        super().__init__(cause, fix)
        self.field = field


class SecretUnavailable(CountersignError):
    """A secret cannot be opened or read: the wrong key, a missing variable or file. Never holds the secret."""


class QueueFull(CountersignError):
    """A message was not accepted, because `limit` turns of its author are queued."""

    def __init__(self, limit: int) -> None:
        waiting = "1 of your messages is" if limit == 1 else f"{limit} of your messages are"
        super().__init__(
            f"This message was not accepted: {waiting} waiting already, the most for one person.",
            "send it again when some of them have been answered, or stop some",
        )

    @property
    def user_message(self) -> str:
        """Text for the author in a chat."""
        return f"{self.cause} {self.fix.capitalize()}."


class ServerTrouble(CountersignError):
    """An MCP server did not do what an admin asked of it."""


class ModelError(CountersignError):
    """The language model gave no answer."""


class ModelUnavailable(ModelError):
    """The model gave no answer for now. `retry_after` is in seconds, None if the provider did not say."""

    def __init__(self, cause: str, fix: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(cause, fix)
        self.retry_after = retry_after


class LimitReached(ModelError):
    """The model was not asked: an operator's limit on tokens or money is reached."""


class ModelRejected(ModelError):
    """The model will not answer this request however often it is sent: key, model name, size, content. `tool` is the
    name of the tool whose definition it does not take, if that is why.
    """

    def __init__(self, cause: str, fix: str = "", *, tool: str = "") -> None:
        super().__init__(cause, fix)
        self.tool = tool


class ContextTooLong(ModelRejected):
    """The transcript is longer than the model or its service takes: less of it would be taken."""


class SmallerWindow(ContextTooLong):
    """The model gave no answer, and the one that stands in for it takes less: it is to be asked with a request that is
    made for it. The cause is why the first gave none.
    """


class ModelBarred(ModelRejected):
    """The service will answer nothing at all: it refuses the key, wants to be paid, or has no such model. Another one
    may answer the same request.
    """


class DeliveryFailed(CountersignError):
    """A platform rejected a request: try again after `retry_after` seconds, or never if `permanent`. `details` are the
    vendor's words: the log and the doctor have them, texts for users do not.
    """

    def __init__(
        self,
        cause: str,
        fix: str = "",
        *,
        retry_after: float | None = None,
        permanent: bool = False,
        details: str = "",
    ) -> None:
        super().__init__(cause, fix)
        self.retry_after = retry_after
        self.permanent = permanent
        self.details = details

    @property
    def detailed_cause(self) -> str:
        """The cause with the vendor's words."""
        return f"{self.cause} ({self.details})" if self.details else self.cause


class TurnInterrupted(CountersignError):
    """The turn is no longer this task's to drive."""


class LostLease(TurnInterrupted):
    """Another process owns the turn now: write nothing, draw nothing."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn {turn_id} is owned by another process now")


class Stopped(TurnInterrupted):
    """A person stopped the turn: start nothing new."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn {turn_id} was stopped")
