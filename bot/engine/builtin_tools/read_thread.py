"""Built-in tool `read_thread`: reads the messages of the conversation on its platform, from its beginning.

It reads no other place, and the author's rights are looked up at each call. A long conversation is summed up in parts,
or read on by the number of a message. All of it is words of others (`policy.information_flow`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bot.domain.messages import ToolCall, ToolResult
from bot.domain.tools import OWN_SERVER
from bot.domain.turns import ToolRef
from bot.engine.builtin_tools import define_tool, text_result
from bot.engine.prompt.messages import READ_THREAD, clean_name
from bot.errors import DeliveryFailed
from bot.ports.platform import PostedText

PAGE = 16_000
"""Characters of messages in one result. The first message is always included."""
LONGEST_MESSAGE = 4_000
TOOL = define_tool(
    READ_THREAD,
    "Read what people wrote in this conversation, from its beginning: you were shown only the latest of it. "
    "Without arguments it gives all of it, summed up if it is long. With the number of a message it gives the "
    f"messages from there on word for word, up to {PAGE} characters. Tell the person how many messages were read.",
    {"first": {"type": "integer", "minimum": 1, "description": "The number of the message to begin at."}},
)


class ReadThread:
    """The tool in one turn. `read` returns the messages that the author may read; it raises DeliveryFailed and
    TimeoutError. `sum_up` returns a summary of lines and the number of its parts; an empty text if there is none.
    """

    name = READ_THREAD
    reference = ToolRef(OWN_SERVER, TOOL.original_name, definition=TOOL.definition, read_only=True, destructive=False)

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[PostedText]]],
        sum_up: Callable[[Sequence[str]], Awaitable[tuple[str, int]]],
    ) -> None:
        self._read = read
        self._sum_up = sum_up
        self.count = 0
        """Number of messages that were read."""

    async def call(self, call: ToolCall) -> ToolResult:
        """Return the messages, or a summary of them. The first line is displayed to users, too."""
        first = call.arguments.get("first")
        if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < 1):
            return text_result(call, '"first" is the number of a message, from 1.', is_error=True)
        try:
            lines = [_line(number, posted) for number, posted in enumerate(await self._read(), start=1)]
        except (DeliveryFailed, TimeoutError) as error:
            return text_result(call, f"The messages could not be read: {error or 'the platform does not answer'}")
        self.count = len(lines)
        whole = f"Read {len(lines)} messages of this conversation"
        if first is None and sum(map(len, lines)) > PAGE:
            summary, parts = await self._sum_up(lines)
            if summary:
                return text_result(call, f'{whole}, summed up in {parts} parts; "first" gives their words.\n{summary}')
        return text_result(call, _page(lines, first or 1, whole))


def _page(lines: Sequence[str], first: int, whole: str) -> str:
    if first > max(len(lines), 1):
        return f"The conversation has {len(lines)} messages."
    room, page = PAGE, list[str]()
    for line in lines[first - 1 :]:
        room -= len(line) + 1
        if room < 0 and page:
            break
        page.append(line)
    last = first - 1 + len(page)
    rest = f'\n[{len(lines) - last} more messages: "first" {last + 1} reads on.]' if last < len(lines) else ""
    return "\n".join((f"{whole}; these are {first} to {last}.", *page)) + rest


def _line(number: int, posted: PostedText) -> str:
    # No line of a text may look like the beginning of another author's.
    text = posted.text if len(posted.text) <= LONGEST_MESSAGE else f"{posted.text[:LONGEST_MESSAGE]}…"
    return f"{number}. {clean_name(posted.name) or 'Somebody'}: {text}".replace("\n", "\n    ")
