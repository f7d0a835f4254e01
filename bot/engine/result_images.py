"""Images that tools returned, for a model that can see them.

Read from the turn's files when the model is asked, and remembered while the turn is driven here. A model that cannot
see, and whatever is too large or too much, gets a text in the image's place (`prompt_context`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from bot.domain.completions import Capabilities
from bot.domain.messages import ImageAudience, StoredFile
from bot.domain.turns import TurnRecord
from bot.engine.attachments import LARGEST, MOST_IMAGE_BYTES
from bot.engine.file_types import FileKind
from bot.errors import NotFound

MOST = 5
"""In one request, the newest: each costs a thousand tokens and more."""


class ReturnedImages:
    """Images by the id of their file, as far as they were read. `read` gives the bytes of a file."""

    def __init__(self, read: Callable[[str], Awaitable[bytes]]) -> None:
        self._read = read
        self._known: dict[str, bytes] = {}

    async def of(self, record: TurnRecord, capabilities: Capabilities, most: int = MOST) -> Mapping[str, bytes]:
        """What this model is to see of the turn's results: the newest images that it takes, within the limits."""
        if not capabilities.images:
            return {}
        wanted = dict.fromkeys(_newest(record, most, min(LARGEST[FileKind.IMAGE], capabilities.image_bytes)))
        for file_id in wanted:
            if file_id not in self._known:
                try:
                    self._known[file_id] = await self._read(file_id)
                except NotFound:
                    continue
        return {file_id: self._known[file_id] for file_id in wanted if file_id in self._known}


def _newest(record: TurnRecord, most: int, largest: int) -> Iterator[str]:
    count, room = most, MOST_IMAGE_BYTES
    for step in reversed(record.calls):
        for part in reversed(step.result.parts if step.result else ()):
            if isinstance(part, StoredFile) and part.is_image and part.readers is not ImageAudience.PEOPLE and part.id:
                if count == 0 or part.size > room:
                    return
                if part.size <= largest:
                    count, room = count - 1, room - part.size
                    yield part.id
