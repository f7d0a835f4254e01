"""Card of an elicitation, as everyone in the conversation sees it, with the actions of its user.

The address of a page that is to be visited is not on the card, only its domain: the card is for everybody, the way
there for one person. Which keys or buttons there are is the platform's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.domain.elicitations import (
    EXPIRED_REASON,
    Elicitation,
    ElicitationAction,
    ElicitationMode,
    ElicitationRequest,
    FormMode,
    UrlMode,
    mentions_secret,
)
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.rendering.approval_card import format_duration
from bot.rendering.text_safety import is_lookalike, show_invisible, single_line, strip_control

ANSWER, CONFIRM, DECLINE = "answer-server", "confirm-server", "decline-server"
VISIT, VISITED = "visit-server", "visited-server"
"""Commands of the buttons: open the form, send one without fields, decline; show the link, confirm the visit."""
MESSAGE_LIMIT = 300
MESSAGE_LINES = 6
FIELD_LIMIT = 60
NO_NAME = "(no name)"
MOST_FIELDS = 10
LIKE_ANOTHER = "This domain is written in letters that can look like others: make sure that it is the one you know."
NO_SECRETS = "Do not type a password, a code or a key: no server may ask for one here."
NOT_NEEDED = "Withdrawn: the server needs no answer any more"


@dataclass(frozen=True, slots=True)
class ElicitationButton:
    """Button of an elicitation card. `words` are its command, the command's name first."""

    label: str
    words: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class ElicitationCard:
    """Card of an elicitation. All text is safe as plain text. `message` is the server's, perhaps shortened, and may
    have several lines. `fields` are the requested fields of a form, `domain` is the destination of a link: one of them
    is empty. `expires_in` is in seconds, `expires_at` epoch seconds. An open card has offers, a settled one an outcome.
    """

    elicitation_id: str
    title: str
    message: str
    server: str
    tool: str
    fields: tuple[str, ...]
    domain: str
    warning: str
    outcome: str
    offers: tuple[ElicitationButton, ...]
    asked_of: str
    expires_in: float | None
    expires_at: float | None

    @property
    def expiry(self) -> str:
        """When the question goes away by itself, in words."""
        return "does not expire" if self.expires_in is None else f"expires in {format_duration(self.expires_in)}"


def elicitation_card(step: ToolStep, elicitation: Elicitation, view: TurnView) -> ElicitationCard:
    """The card of a question that the server of this call has asked."""
    asked, author = elicitation.question.ask, view.turn.author
    server = server_name(step)
    is_open = elicitation.open and not (step.status.ended or view.turn.status.ended)
    return ElicitationCard(
        elicitation_id=elicitation.id,
        title=f"{server} {_wants(asked)}",
        message=_cut(strip_control(elicitation.question.message).strip()),
        server=server,
        tool=single_line(step.tool.name if step.tool else step.call.name, FIELD_LIMIT),
        fields=requested_fields(asked),
        domain=domain_of(asked),
        warning=warning_text(elicitation.question),
        outcome="" if is_open else outcome_text(elicitation),
        offers=_offers(elicitation) if is_open else (),
        asked_of=single_line(author.name, FIELD_LIMIT) or single_line(author.id, FIELD_LIMIT),
        expires_in=elicitation.expires_in,
        expires_at=elicitation.expires_at,
    )


def server_name(step: ToolStep) -> str:
    """Return the name of the elicitation's server."""
    return (single_line(step.tool.server, FIELD_LIMIT) if step.tool else "") or "The server"


def outcome_text(elicitation: Elicitation) -> str:
    """Return the result of a closed elicitation, one line."""
    by = single_line(elicitation.answered_by, FIELD_LIMIT)
    reason = single_line(elicitation.reason, 200).rstrip(".")
    match elicitation.reply.action if elicitation.reply is not None else ElicitationAction.CANCEL:
        case ElicitationAction.ACCEPT:
            done = "Visited" if isinstance(elicitation.question.ask, UrlMode) else "Answered"
            return f"{done} by {by}" if by else done
        case ElicitationAction.DECLINE:
            return f"Declined by {by}" if by else f"Declined. {reason}" if reason else "Declined"
        case ElicitationAction.CANCEL if by:
            return f"Left unanswered by {by}"
        case ElicitationAction.CANCEL if reason == EXPIRED_REASON.rstrip("."):
            return reason
        case ElicitationAction.CANCEL:
            return f"Withdrawn: {reason}" if reason else NOT_NEEDED


def requested_fields(asked: ElicitationMode) -> tuple[str, ...]:
    """Return the titles of the form's fields; empty for a link."""
    match asked:
        case FormMode(schema):
            properties = schema.get("properties")
            properties = properties if isinstance(properties, Mapping) else {}
            titles = [field_title(str(name), about) for name, about in properties.items()]
            more = len(titles) - MOST_FIELDS
            return (*titles[:MOST_FIELDS], *([f"{more} more"] if more > 0 else []))
        case UrlMode():
            return ()


def field_title(name: str, schema: object) -> str:
    """Return the title of a field from its schema, or its name."""
    title = schema.get("title") if isinstance(schema, Mapping) else None
    titled = single_line(show_invisible(title), FIELD_LIMIT) if isinstance(title, str) else ""
    return titled or single_line(show_invisible(name), FIELD_LIMIT) or NO_NAME


def domain_of(asked: ElicitationMode) -> str:
    """Return the domain of the link, with the port if one is named; empty for a form."""
    if not isinstance(asked, UrlMode):
        return ""
    try:
        return single_line(show_invisible(urlsplit(asked.url).netloc.rpartition("@")[2]), 260)
    except ValueError:
        return ""


def warning_text(question: ElicitationRequest) -> str:
    """Return a warning sentence; empty for most elicitations."""
    match question.ask:
        case UrlMode(url):
            return LIKE_ANOTHER if is_lookalike(url) else ""
        case FormMode():
            return NO_SECRETS if mentions_secret(question) else ""


def _wants(asked: ElicitationMode) -> str:
    match asked:
        case FormMode():
            return "asks for an answer"
        case UrlMode():
            return "wants a page visited"


def _offers(elicitation: Elicitation) -> tuple[ElicitationButton, ...]:
    decline = ElicitationButton("Decline", (DECLINE, elicitation.id))
    match elicitation.question.ask:
        case FormMode():
            return (ElicitationButton("Answer…", (ANSWER, elicitation.id), strong=True), decline)
        case UrlMode():
            return (ElicitationButton("Show the link…", (VISIT, elicitation.id), strong=True), decline)


def _cut(text: str) -> str:
    beginning = "\n".join(text[:MESSAGE_LIMIT].split("\n")[:MESSAGE_LINES])
    return text if beginning == text else f"{beginning.rstrip()}…"
