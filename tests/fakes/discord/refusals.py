"""Errors of Discord: an HTTP status, and JSON with a code and a message."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

KNOWN: dict[int, tuple[int, str]] = {
    10002: (404, "Unknown Application"),
    10003: (404, "Unknown Channel"),
    10004: (404, "Unknown Guild"),
    10007: (404, "Unknown Member"),
    10008: (404, "Unknown Message"),
    10011: (404, "Unknown Role"),
    10013: (404, "Unknown User"),
    10015: (404, "Unknown Webhook"),
    10062: (404, "Unknown interaction"),
    10063: (404, "Unknown application command"),
    30032: (400, "Maximum number of application commands reached (100)."),
    30034: (400, "Max number of daily application command creates has been reached (200)"),
    30046: (429, "Maximum number of edits to messages older than 1 hour reached. Try again later."),
    40005: (413, "Request entity too large"),
    40094: (400, "This interaction has reached the maximum number of follow up messages."),
    40060: (400, "Interaction has already been acknowledged."),
    50001: (403, "Missing Access"),
    50003: (400, "Cannot execute action on a DM channel"),
    50005: (403, "Cannot edit a message authored by another user"),
    50006: (400, "Cannot send an empty message"),
    50007: (403, "Cannot send messages to this user"),
    50008: (400, "Cannot send messages in a non-text channel"),
    50013: (403, "Missing Permissions"),
    50021: (403, "Cannot execute action on a system message"),
    50024: (400, "Cannot execute action on this channel type"),
    50027: (401, "Invalid Webhook Token"),
    50035: (400, "Invalid Form Body"),
    50083: (400, "Thread is archived"),
    50109: (400, "The request body contains invalid JSON."),
    160002: (400, "Cannot reply without permission to read message history"),
    160004: (400, "A thread has already been created for this message"),
    160005: (400, "Thread is locked"),
}
"""Statuses and messages by Discord's error codes."""


class Refused(Exception):
    """A call is refused. `more`: further fields of the answer, such as `errors`."""

    def __init__(self, code: int, *, status: int = 0, message: str = "", **more: Any) -> None:
        known_status, known_message = KNOWN.get(code, (400, ""))
        self.code, self.status, self.message = code, status or known_status, message or known_message
        self.more: Json = more
        super().__init__(f"{self.status} {code} {self.message} {more or ''}".strip())

    @property
    def body(self) -> Json:
        """The JSON of the answer."""
        return {"message": self.message, "code": self.code} | self.more


def invalid(where: str, code: str, message: str) -> Refused:
    """`Invalid Form Body` with one error; `where` is the path of the field, as 'embeds.0.title'."""
    errors: Json = {"_errors": [{"code": code, "message": message}]}
    for part in reversed([part for part in where.split(".") if part]):
        errors = {part: errors}
    return Refused(50035, errors=errors)


def too_long(where: str, most: int, least: int = 0) -> Refused:
    """The error for a text that is too long, or too short where there is a least."""
    if least:
        return invalid(where, "BASE_TYPE_BAD_LENGTH", f"Must be between {least} and {most} in length.")
    return invalid(where, "BASE_TYPE_MAX_LENGTH", f"Must be {most} or fewer in length.")


def missing_field(where: str) -> Refused:
    """Return the error for a field that must be there."""
    return invalid(where, "BASE_TYPE_REQUIRED", "This field is required")
