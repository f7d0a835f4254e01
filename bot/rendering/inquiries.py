"""What a server asks back, as a card: what everybody in the conversation sees of it, and what whoever is asked can do.

Called by every platform. The address of a page that is to be visited is not on the card, only its domain: the card is
for everybody, the way there for one person. Which keys or buttons there are is the platform's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.domain.elicitations import Action, Ask, Elicitation, FormAsk, LinkAsk, ServerQuestion, suspicious
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.rendering.cards import in_words
from bot.rendering.links import imitates
from bot.rendering.plain import one_line, plain, revealed

ANSWER, CONFIRM, DECLINE = "answer-server", "confirm-server", "decline-server"
VISIT, VISITED = "visit-server", "visited-server"
"""What presses say, in the words of a command: open the form, send one without fields, decline; show the link, and say
that one has been there.
"""
MESSAGE_LIMIT = 300
MESSAGE_LINES = 6
FIELD_LIMIT = 60
NO_NAME = "(no name)"
MOST_FIELDS = 10
LIKE_ANOTHER = "This domain is written in letters that can look like others: make sure that it is the one you know."
NO_SECRETS = "Do not type a password, a code or a key: no server may ask for one here."
NOT_NEEDED = "Withdrawn: the server needs no answer any more"


@dataclass(frozen=True, slots=True)
class InquiryOffer:
    """Something that can be done about a question. `words` are what a press says, the command's name first."""

    label: str
    words: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class InquiryCard:
    """A question of a server's. All text is safe to draw as plain text; `message` is the server's, perhaps cut, and may
    have several lines. `fields` are what a form asks for, `domain` is where a link leads to: one of them is empty.
    `expires_in` is in seconds, `expires_at` epoch seconds. An open one has offers, a settled one an outcome.
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
    offers: tuple[InquiryOffer, ...]
    asked_of: str
    expires_in: float | None
    expires_at: float | None

    @property
    def expiry(self) -> str:
        """When the question goes away by itself, in words."""
        return "does not expire" if self.expires_in is None else f"expires in {in_words(self.expires_in)}"


def inquiry_card(step: ToolStep, elicitation: Elicitation, view: TurnView) -> InquiryCard:
    """The card of a question that the server of this call has asked."""
    asked, author = elicitation.question.ask, view.turn.author
    server = server_name(step)
    is_open = elicitation.open and not (step.status.ended or view.turn.status.ended)
    return InquiryCard(
        elicitation_id=elicitation.id,
        title=f"{server} {_wants(asked)}",
        message=_cut(plain(elicitation.question.message).strip()),
        server=server,
        tool=one_line(step.tool.name if step.tool else step.call.name, FIELD_LIMIT),
        fields=asked_for(asked),
        domain=domain_of(asked),
        warning=warning_of(elicitation.question),
        outcome="" if is_open else inquiry_outcome(elicitation),
        offers=_offers(elicitation) if is_open else (),
        asked_of=one_line(author.name, FIELD_LIMIT) or one_line(author.id, FIELD_LIMIT),
        expires_in=elicitation.expires_in,
        expires_at=elicitation.expires_at,
    )


def server_name(step: ToolStep) -> str:
    """Whose question it is."""
    return (one_line(step.tool.server, FIELD_LIMIT) if step.tool else "") or "The server"


def inquiry_outcome(elicitation: Elicitation) -> str:
    """How a question ended that waits for nobody any more, one line."""
    by = one_line(elicitation.answered_by, FIELD_LIMIT)
    reason = one_line(elicitation.reason, 200).rstrip(".")
    match elicitation.reply.action if elicitation.reply is not None else Action.CANCEL:
        case Action.ACCEPT:
            done = "Visited" if isinstance(elicitation.question.ask, LinkAsk) else "Answered"
            return f"{done} by {by}" if by else done
        case Action.DECLINE:
            return f"Declined by {by}" if by else f"Declined. {reason}" if reason else "Declined"
        case Action.CANCEL if by:
            return f"Left unanswered by {by}"
        case Action.CANCEL:
            return (reason if reason.startswith("Nobody") else f"Withdrawn: {reason}") if reason else NOT_NEEDED


def asked_for(asked: Ask) -> tuple[str, ...]:
    """What a form wants to be told, by the titles of its fields; empty for a link."""
    match asked:
        case FormAsk(schema):
            properties = schema.get("properties")
            properties = properties if isinstance(properties, Mapping) else {}
            titles = [field_title(str(name), about) for name, about in properties.items()]
            more = len(titles) - MOST_FIELDS
            return (*titles[:MOST_FIELDS], *([f"{more} more"] if more > 0 else []))
        case LinkAsk():
            return ()


def field_title(name: str, schema: object) -> str:
    """What a field is called: as its schema has it, or by its name."""
    title = schema.get("title") if isinstance(schema, Mapping) else None
    titled = one_line(revealed(title), FIELD_LIMIT) if isinstance(title, str) else ""
    return titled or one_line(revealed(name), FIELD_LIMIT) or NO_NAME


def domain_of(asked: Ask) -> str:
    """Where a link leads to, with the port if one is named; empty for a form."""
    if not isinstance(asked, LinkAsk):
        return ""
    try:
        return one_line(revealed(urlsplit(asked.url).netloc.rpartition("@")[2]), 260)
    except ValueError:
        return ""


def warning_of(question: ServerQuestion) -> str:
    """What to be careful of, a sentence; mostly nothing."""
    match question.ask:
        case LinkAsk(url):
            return LIKE_ANOTHER if imitates(url) else ""
        case FormAsk():
            return NO_SECRETS if suspicious(question) else ""


def _wants(asked: Ask) -> str:
    match asked:
        case FormAsk():
            return "asks for an answer"
        case LinkAsk():
            return "wants a page visited"


def _offers(elicitation: Elicitation) -> tuple[InquiryOffer, ...]:
    decline = InquiryOffer("Decline", (DECLINE, elicitation.id))
    match elicitation.question.ask:
        case FormAsk():
            return (InquiryOffer("Answer…", (ANSWER, elicitation.id), strong=True), decline)
        case LinkAsk():
            return (InquiryOffer("Show the link…", (VISIT, elicitation.id), strong=True), decline)


def _cut(text: str) -> str:
    beginning = "\n".join(text[:MESSAGE_LIMIT].split("\n")[:MESSAGE_LINES])
    return text if beginning == text else f"{beginning.rstrip()}…"
