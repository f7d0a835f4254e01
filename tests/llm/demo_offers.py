"""Fictitious servers, and helpers that send requests to the demo model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from bot.domain.completions import Completion, ModelEvent, ModelRequest, TextDelta, ToolChoice
from bot.domain.messages import Message, TextPart, ToolCall, ToolResult, assistant, tool_results, user
from bot.domain.tools import Annotations, Tool
from bot.llm.demo import Config, create

TODAY = date(2026, 3, 4)  # a Wednesday
TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
DEFINITIONS = {"Status": {"enum": ["open", "paid", "overdue"]}}

Asked = list[tuple[str, dict[str, Any]]]


def tool(
    name: str, title: str, description: str, properties: Mapping[str, Any], *required: str, reads: bool | None = None
) -> Tool:
    server, _, original = name.partition("__")
    schema = {"type": "object", "properties": properties, "required": list(required), "$defs": DEFINITIONS}
    return Tool(name, server, original, title, description, schema, annotations=Annotations(read_only=reads))


NOTES = (
    tool(
        "notes__add_note",
        "Add a note",
        "Save a note for later.",
        {"text": {**TEXT, "description": "What to remember"}, "tags": {"type": "array", "items": TEXT}},
        "text",
    ),
    tool(
        "notes__list_notes",
        "List notes",
        "All notes, newest first.",
        {"limit": {**WHOLE, "default": 20}, "tag": {"anyOf": [TEXT, {"type": "null"}]}},
        reads=True,
    ),
    tool("notes__search_notes", "Search notes", "Find notes by words.", {"query": TEXT}, "query", reads=True),
    tool("notes__read_note", "Read a note", "One note.", {"id": WHOLE}, "id", reads=True),
    tool(
        "notes__delete_note",
        "Delete a note",
        "Remove a note for good.",
        {"id": {**WHOLE, "description": "Number of the note"}},
        "id",
    ),
)
WEATHER = (
    tool(
        "weather__get_forecast",
        "Weather forecast",
        "Forecast for the coming days: rain, highest temperature.",
        {"place": {**TEXT, "description": "City, such as Tokyo"}, "days": {**WHOLE, "minimum": 1, "maximum": 7}},
        "place",
        reads=True,
    ),
)
LAMPS = (
    tool("home__turn_on", "Turn on", "Switch a lamp on.", {"room": TEXT}, "room"),
    tool("home__turn_off", "Turn off", "Switch a lamp off.", {"room": TEXT}, "room"),
    tool(
        "home__setBrightness",
        "",
        "Brightness of a lamp.",
        {"room": TEXT, "percent": {**WHOLE, "minimum": 0, "maximum": 100}},
        "room",
        "percent",
    ),
)
INVOICES = (
    tool(
        "billing__create_invoice",
        "Create invoice",
        "Make a new invoice for a customer.",
        {"customer": TEXT, "amount": {"type": "number"}, "currency": {"enum": ["EUR", "USD"], "default": "EUR"}},
        "customer",
        "amount",
    ),
    tool(
        "billing__list_invoices",
        "List invoices",
        "Invoices by status.",
        {"status": {"$ref": "#/$defs/Status"}, "since": {**TEXT, "format": "date"}},
        reads=True,
    ),
    tool(
        "billing__send_invoice",
        "Send invoice",
        "Mail an invoice.",
        {"invoice_id": TEXT, "email": {**TEXT, "format": "email"}},
        "invoice_id",
        "email",
    ),
)
TICKETS = (
    tool(
        "desk__createTicket",
        "",
        "Open a new ticket in the help desk.",
        {
            "title": TEXT,
            "priority": {"enum": ["low", "normal", "high"], "default": "normal"},
            "urgent": {"type": "boolean"},
        },
        "title",
        "priority",
    ),
    tool("desk__close_ticket", "Close ticket", "", {"ticket_id": WHOLE}, "ticket_id"),
    tool("desk__assign_ticket", "Assign ticket", "", {"ticket_id": WHOLE, "assignee": TEXT}, "ticket_id", "assignee"),
)
UNITS = (
    tool(
        "units__convert",
        "Convert units",
        "Convert a number from one unit to another.",
        {"value": {"type": "number"}, "from_unit": TEXT, "to_unit": TEXT},
        "value",
        "from_unit",
        "to_unit",
        reads=True,
    ),
)
PLANNER = (
    tool(
        "agenda__plan_event",
        "Plan an event",
        "Put an event into the agenda.",
        {"subject": TEXT, "day": {**TEXT, "format": "date"}, "guests": {"type": "array", "items": TEXT}},
        "subject",
        "day",
    ),
)
EVERYTHING = (*NOTES, *WEATHER, *LAMPS, *INVOICES, *TICKETS, *UNITS, *PLANNER)


async def events(request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in create(Config(today=lambda: TODAY)).stream(request)]


async def reply(
    messages: Sequence[Message], tools: Sequence[Tool] = EVERYTHING, choice: ToolChoice = ToolChoice.AUTO
) -> Message:
    """Return the completed message. Check that the streamed text is equal to its text."""
    *pieces, last = await events(ModelRequest(tuple(messages), tuple(tools), choice))
    assert isinstance(last, Completion)
    assert all(isinstance(piece, TextDelta) for piece in pieces)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == last.message.text
    return last.message


async def calls(question: str, tools: Sequence[Tool] = EVERYTHING) -> Asked:
    message = await reply([user(question)], tools)
    return [(call.name, dict(call.arguments)) for call in message.tool_calls]


def tool_round(
    question: str, name: str, text: str = "", *, error: bool = False, structured: Any = None, **arguments: Any
) -> list[Message]:
    """Return a user's message, the demo's call of a tool, and the tool's result."""
    result = ToolResult("demo_1", (TextPart(text),) if text else (), is_error=error, structured=structured)
    return [user(question), assistant("", ToolCall("demo_1", name, arguments)), tool_results(result)]
