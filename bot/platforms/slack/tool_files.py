"""Images and files that tools returned, shared below the turn that asked for them.

A file's reference is Slack's id of it. What Slack will never take is left out, and the turn drawn without it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.slack.uploads import share_file
from bot.platforms.slack.web_api import WebApi
from bot.rendering.tool_files import LEFT_OUT, returned_files

log = logging.getLogger(__name__)

LARGEST = 20 * 1024 * 1024
"""In bytes."""


async def share_tool_files(api: WebApi, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
    """Share what has not been shared yet. Raises DeliveryFailed."""
    where = view.turn.conversation
    for file in returned_files(view, LARGEST):
        if file.slot in refs:
            yield PostedMessage(file.slot, refs[file.slot])
            continue
        try:
            yield PostedMessage(
                file.slot, await share_file(api, where.channel, where.thread, file.name, await file.read())
            )
        except NotFound:
            yield PostedMessage(file.slot, LEFT_OUT)
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            log.warning("a file of turn %s could not be shared: %s", view.turn.id, failure)
            yield PostedMessage(file.slot, LEFT_OUT)
