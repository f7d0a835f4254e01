"""A person who agrees to whatever a server asks back, and sends each form as it comes."""

from __future__ import annotations

from dataclasses import replace

from bot.domain.conversations import Author
from bot.domain.elicitations import Action, Elicited, FormAsk, LinkAsk, Replies, ServerQuestion
from bot.domain.messages import ToolCall
from bot.domain.tools import AsksBack, Tool, ToolOutcome
from bot.ports import CallContext
from bot.rendering.inquiry_fields import inquiry_form
from bot.tools.toolbox import McpToolbox


async def agreed(question: ServerQuestion) -> Elicited:
    """The answer."""
    match question.ask:
        case FormAsk(schema):
            form = inquiry_form(schema)
            values, _ = form.read({field.name: field.value for field in form.fields})
            return Elicited(Action.ACCEPT, values)
        case LinkAsk():
            return Elicited(Action.ACCEPT)


async def answering_all(box: McpToolbox, tool: Tool, call: ToolCall, author: Author, key: str) -> ToolOutcome:
    """Call a tool, and answer until its server knows enough."""
    context = CallContext(author, key, elicit=agreed)
    while isinstance(outcome := await box.call(tool, call, context), AsksBack):
        replies = {each.key: await agreed(each) for each in outcome.questions}
        context = replace(context, replies=Replies(replies, outcome.state))
    return outcome
