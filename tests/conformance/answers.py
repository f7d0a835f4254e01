"""A user who agrees to every question of a server, and sends each form as it comes."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.conversations import Author
from bot.domain.elicitations import (
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    ElicitationResults,
    FormMode,
    UrlMode,
)
from bot.domain.messages import ToolCall
from bot.domain.tools import CallNeedsInput, Tool, ToolOutcome
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from bot.rendering.elicitation_card import elicitation_form


async def accept_elicitation(question: ElicitationRequest) -> ElicitationResult:
    """The answer."""
    match question.ask:
        case FormMode(schema):
            form = elicitation_form(schema)
            values, _ = form.parse_answers({field.name: field.value for field in form.fields})
            return ElicitationResult(ElicitationAction.ACCEPT, values)
        case UrlMode():
            return ElicitationResult(ElicitationAction.ACCEPT)


async def answering_all(box: McpToolbox, tool: Tool, call: ToolCall, author: Author, key: str) -> ToolOutcome:
    """Call a tool, and answer until its server knows enough."""
    context = CallContext(author, key, elicit=accept_elicitation)
    while isinstance(outcome := await box.call(tool, call, context), CallNeedsInput):
        replies = {question.key: await accept_elicitation(question) for question in outcome.questions}
        context = replace(context, replies=ElicitationResults(replies, outcome.state))
    return outcome
