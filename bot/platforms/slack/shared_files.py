"""Images and files that tools returned, shared below the turn that asked for them.

Each is one slot of its turn, by its step and place, so that it is shared once; its reference is the file's id. What
Slack will never take is left out, and the turn drawn without it.
"""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from bot.domain.messages import FilePart, ImagePart
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import Drawn, Refs, TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.uploads import share
from bot.platforms.slack.web_api import WebApi
from bot.rendering.tool_lines import tool_name

log = logging.getLogger(__name__)

PREFIX = "file-"
MOST = 20
LARGEST = 20 * 1024 * 1024
"""In bytes."""
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class _Shared:
    slot: str
    name: str
    data: bytes


async def shared(api: WebApi, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
    """Share what has not been shared yet. Raises DeliveryFailed."""
    where = view.turn.conversation
    for file in list(_files(view))[:MOST]:
        if file.slot in refs:
            yield Drawn(file.slot, refs[file.slot])
            continue
        try:
            yield Drawn(file.slot, await share(api, where.channel, where.thread, file.name, file.data))
        except DeliveryFailed as failure:
            if not failure.permanent:
                raise
            log.warning("a file of turn %s could not be shared: %s", view.turn.id, failure)
            yield Drawn(file.slot, LEFT_OUT)


def _files(view: TurnView) -> Iterator[_Shared]:
    for step in view.steps:
        if not isinstance(step, ToolStep) or step.result is None or step.status is not StepStatus.DONE:
            continue
        for place, part in enumerate(step.result.parts):
            if isinstance(part, ImagePart | FilePart) and 0 < len(part.data) <= LARGEST:
                yield _Shared(f"{PREFIX}{step.n}-{place}", _name(step, part), part.data)


def _name(step: ToolStep, part: ImagePart | FilePart) -> str:
    if isinstance(part, FilePart) and part.name:
        return part.name
    return f"{tool_name(step)}{mimetypes.guess_extension(part.mime_type) or ''}"
