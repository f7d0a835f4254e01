"""Exceptions: one class for each error that is handled in its own way.

    CountersignError              base class, with a cause and a fix
    ├── SettingsError             invalid environment or configuration file
    ├── DatabaseError             the database cannot be used at all
    │   ├── DatabaseUnavailable   for now: unreachable, restarting, locked
    │   │   └── DatabaseUnwritable  the same: it answers, but accepts no writes
    │   └── DatabaseHeld          another process uses this SQLite file
    ├── NotFound                  the entity is missing, or hidden from this user
    │   └── ContentDeleted        the turn exists, but its texts and results were deleted
    ├── Conflict                  the entity was changed meanwhile, or a name is taken
    ├── SecretUnavailable         a secret cannot be opened or read: wrong key, missing variable or file
    ├── QueueFull                 a message was not accepted: too many turns of its author are queued
    ├── ServerTrouble             an operation on an MCP server failed
    │   └── NotConnected          it has no connection, so nothing was sent
    ├── ModelError                the language model gave no answer
    │   ├── ModelUnavailable      for now: busy, unreachable, cut off; `retry_after` in seconds, or None
    │   ├── LimitReached          no request: a limit on tokens or money is reached
    │   └── ModelRejected         for good: key, model name or request rejected, perhaps because of one `tool`
    │       ├── ContextTooLong    the prompt is too long
    │       │   └── SmallerWindow the fallback model needs a shorter prompt
    │       └── ModelBarred       the service rejects the key or the model: another one may answer
    ├── DeliveryFailed            a platform rejected a request; `retry_after` in seconds, or `permanent`
    └── TurnInterrupted           the task must end its work on the turn
        ├── LostLease             another process owns the turn: write nothing
        └── Stopped               a user stopped the turn: start nothing new

A failing tool is not an error but a result that the model reads. Vendor errors stop at their adapter and are
chained as causes. Messages are for users: they contain no secret and no traceback.
"""

from __future__ import annotations

from bot.i18n import _, gettext_lazy, ngettext_lazy


class CountersignError(Exception):
    """Base class. `cause` is a sentence with the failure, `fix` an imperative (may be empty). As a text it is in the
    current language.
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
        if not self.fix:
            return self.detailed_cause
        return _("{cause} Fix: {fix}", cause=self.detailed_cause, fix=self.fix)


class SettingsError(CountersignError):
    """The environment or a configuration file is invalid."""


class DatabaseError(CountersignError):
    """The database cannot be used at all."""


class DatabaseUnavailable(DatabaseError):
    """The database is unavailable for now: unreachable, restarting, locked."""


class DatabaseUnwritable(DatabaseUnavailable):
    """The database answers, but accepts no writes. `reason` is without its name, such as "its disk is full"."""

    def __init__(self, cause: str, fix: str = "", *, reason: str) -> None:
        super().__init__(cause, fix)
        self.reason = reason


class DatabaseHeld(DatabaseError):
    """Another process uses this SQLite file."""


class InvalidOption(CountersignError):
    """An option of the command line names something that does not exist, or not one thing."""


class NotFound(CountersignError):
    """The entity is missing, or hidden from this user."""


class ContentDeleted(NotFound):
    """The turn exists, but its question, answers and results were deleted."""

    def __init__(self) -> None:
        super().__init__(
            gettext_lazy("That is deleted: the bot has not kept what was asked, answered and returned there.")
        )


class Conflict(CountersignError):
    """The entity was changed meanwhile, or a name is taken. `field` is the field with the error."""

    def __init__(self, cause: str, fix: str = "", *, field: str = "") -> None:
        super().__init__(cause, fix)
        self.field = field


class SecretUnavailable(CountersignError):
    """A secret cannot be read: wrong key, missing variable or file. The message never contains the secret."""


class QueueFull(CountersignError):
    """A message was not accepted, because `limit` turns of its author are queued."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ngettext_lazy(
                "This message was not accepted: {n} of your messages is waiting already, the most for one person.",
                "This message was not accepted: {n} of your messages are waiting already, the most for one person.",
                limit,
            ),
            gettext_lazy("send it again when some of them have been answered, or stop some"),
        )

    @property
    def user_message(self) -> str:
        """Text for the author in a chat."""
        fix = _(self.fix)
        return f"{_(self.cause)} {fix[:1].upper()}{fix[1:]}."


class ServerTrouble(CountersignError):
    """An operation on an MCP server failed."""


class NotConnected(ServerTrouble):
    """A server has no connection, so nothing was sent to it."""


class ModelError(CountersignError):
    """The language model gave no answer. `brief` is the cause without the service's own words."""

    def __init__(self, cause: str, fix: str = "") -> None:
        super().__init__(cause, fix)
        self.brief = cause


class ModelUnavailable(ModelError):
    """The model gave no answer for now. `retry_after` is in seconds, None if the provider did not say."""

    def __init__(self, cause: str, fix: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(cause, fix)
        self.retry_after = retry_after


class LimitReached(ModelError):
    """The model was not asked: an operator's limit on tokens or money is reached."""


class ModelRejected(ModelError):
    """The model rejects this request permanently: key, model name, size, content. `tool` names the tool with a rejected
    definition, if that is the reason.
    """

    def __init__(self, cause: str, fix: str = "", *, tool: str = "") -> None:
        super().__init__(cause, fix)
        self.tool = tool


class ContextTooLong(ModelRejected):
    """The prompt is longer than the model or its service accepts. A shorter one may succeed."""


class SmallerWindow(ContextTooLong):
    """The model gave no answer, and its fallback has a smaller context window: build a request for the fallback. The
    cause is the failure of the first model.
    """


class ModelBarred(ModelRejected):
    """The service rejects the key, requires payment, or lacks the model. Another model may answer the same request."""


class DeliveryFailed(CountersignError):
    """A platform rejected a request: try again after `retry_after` seconds, or never if `permanent`. `details` is
    the vendor's text, for the log and the doctor only.
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
        """The cause with the vendor's text."""
        return f"{self.cause} ({self.details})" if self.details else self.cause


class TurnInterrupted(CountersignError):
    """The task must end its work on the turn."""


class LostLease(TurnInterrupted):
    """Another process owns the turn now: write nothing, deliver nothing."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn {turn_id} is owned by another process now")


class Stopped(TurnInterrupted):
    """A user stopped the turn: start nothing new."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn {turn_id} was stopped")
