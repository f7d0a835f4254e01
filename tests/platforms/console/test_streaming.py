"""A streaming answer: redrawn in place, printed once."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.turns import ModelRetry, StepStatus
from bot.platforms.console.lines import ConsoleTheme
from bot.platforms.console.markdown_renderer import MarkdownRenderer
from tests.platforms.console.chat import Chat, chatting
from tests.platforms.console.scripted_engine import ScriptedTurn
from tests.platforms.console.terminal import prompt_line

DOCUMENT = """\
# Weather

It is **sunny** in *Bern*,
and `18` degrees.

- high 20
- low 10

  at night

1. one
2. two

| day | high |
|-----|-----:|
| Mon |   20 |
| Tue |   19 |

> as they say

```python
for day in week:

    print(day)
```

---
Bye.
"""


class Told:
    """A turn's streamed texts, one for each call of `say`."""

    def __init__(self) -> None:
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()

    async def script(self, turn: ScriptedTurn) -> None:
        text = ""
        while (more := await self._texts.get()) is not None:
            text = more
            await turn.stream(text)
        await turn.end(text)

    def say(self, text: str) -> None:
        self._texts.put_nowait(text)

    def end(self) -> None:
        self._texts.put_nowait(None)


async def wait_for_lines(chat: Chat, *lines: str) -> None:
    """Wait until the lines between the input and the prompt are exactly these lines."""

    wanted = [prompt_line("go"), *lines, prompt_line()]

    def there() -> bool:
        return [line for line in chat.terminal.lines if line][1:] == wanted

    await chat.terminal.until(there, repr(lines))


async def test_unfinished_text_is_drawn_again_in_place() -> None:
    told = Told()
    async with chatting({"go": told.script}) as chat:
        await chat.type("go")
        told.say("It is **sun")
        await wait_for_lines(chat, "It is **sun")
        told.say("It is **sunny**")
        await wait_for_lines(chat, "It is sunny")
        told.say("It is **sunny**.\n\n| a | b |\n")
        await wait_for_lines(chat, "It is sunny.", "| a | b |")
        told.say("It is **sunny**.\n\n| a | b |\n|---|---|\n| 1 | 2 |")
        await wait_for_lines(chat, "It is sunny.", "a   b", "─────", "1   2")
        told.say("It is **sunny**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\nprint")
        await wait_for_lines(chat, "It is sunny.", "a   b", "─────", "1   2", "  print")
        told.end()
        await wait_for_lines(chat, "It is sunny.", "a   b", "─────", "1   2", "  print")


async def test_an_answer_longer_than_the_screen_scrolls_and_is_there_once() -> None:
    told = Told()
    paragraphs = [f"Paragraph {n} of many." for n in range(40)]
    async with chatting({"go": told.script}, size=(60, 10)) as chat:
        await chat.type("go")
        for end in range(1, 41):
            told.say("\n\n".join(paragraphs[:end]))
        await chat.terminal.shows("Paragraph 39")
        told.end()
        await chat.terminal.prompts()
        printed = [line for line in chat.terminal.text.split("\n") if line.startswith("Paragraph")]
        assert printed == paragraphs


async def test_a_question_sent_while_text_streams_stands_below_it() -> None:
    told = Told()
    async with chatting({"go": told.script}) as chat:
        await chat.type("go")
        told.say("Half an ans")
        await chat.terminal.shows("Half an ans")
        await chat.press("and next\r", "queued: and next")
        told.say("Half an answer, whole")
        told.end()
        await chat.terminal.shows("You said: and next")
        text = chat.terminal.text
        assert (
            text.index("Half an answer, whole") < text.index(prompt_line("and next")) < text.index("You said: and next")
        )
        assert text.count("Half an ans") == 1


async def test_the_seconds_are_shown_once_it_takes_long() -> None:
    now = 0.0
    waiting = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.show(activity="Asking the model")
        await waiting.wait()
        await turn.call(StepStatus.DONE, "ok")
        await turn.end("Done.")

    async with chatting({"go": script}, clock=lambda: now) as chat:
        await chat.type("go", "Asking the model")
        assert "Ctrl-C stops" not in chat.terminal.text
        now = 75.0
        await chat.terminal.shows("Asking the model  75 s · Ctrl-C stops")
        waiting.set()
        await chat.terminal.shows("Done.")
        await chat.terminal.prompts()


WHY = ModelRetry(20, "The model service at 127.0.0.1:8080 is overloaded (529): 日本語 " + "and more " * 40)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (
            150,
            " Trying again in 20 s. The model service at 127.0.0.1:8080 is overloaded (529): 日本語 and more and more",
        ),
        (80, " Trying again in 20 s. The model service at 127.0.0"),
        (40, " Trying again in 20 s. The"),
        (24, " Trying again in 20"),
    ],
)
async def test_why_nothing_moves_is_told_on_one_line_as_far_as_the_window_is_wide(columns: int, shown: str) -> None:
    waiting = asyncio.Event()
    now = 0.0

    async def script(turn: ScriptedTurn) -> None:
        await turn.show(activity=WHY)
        await waiting.wait()
        await turn.end("Done.")

    async with chatting({"go": script}, size=(columns, 24), clock=lambda: now) as chat:
        await chat.type("go", shown)
        now = 75.0
        way_out = "  75 s · Ctrl-C stops"
        await chat.terminal.until(
            lambda: columns < 60 or way_out in chat.terminal.text, "what can be done, where there is room"
        )
        await chat.terminal.shows(shown)
        about = [line for line in chat.terminal.lines if "Trying" in line or "more" in line]
        assert len(about) == 1
        waiting.set()
        await chat.terminal.shows("Done.")
        await chat.terminal.prompts()
        assert "Trying" not in chat.terminal.text


@pytest.mark.parametrize("width", [24, 80])
@pytest.mark.parametrize("unicode", [True, False])
def test_block_by_block_an_answer_looks_as_it_does_in_one_piece(width: int, unicode: bool) -> None:
    typesetter = MarkdownRenderer(ConsoleTheme(colour=False, unicode=unicode))
    finished, tail = typesetter.split_blocks(DOCUMENT)
    drawn = "\n".join(typesetter.markdown(block, width) for block in (*finished, tail) if block.strip())
    whole = typesetter.markdown(DOCUMENT, width)
    assert [line for line in drawn.split("\n") if line] == [line for line in whole.split("\n") if line]
    assert max(map(len, drawn.split("\n"))) <= width
    assert unicode or drawn.isascii()
