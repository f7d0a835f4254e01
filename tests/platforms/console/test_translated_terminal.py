"""The terminal's own texts are in the language of its user."""

from __future__ import annotations

import asyncio

from bot.domain.turns import StepStatus
from bot.i18n import use_language
from bot.platforms.console.typed_lines import COMMANDS
from tests.i18n.pseudo_language import untranslated_words
from tests.platforms.console.chat import chatting
from tests.platforms.console.scripted_engine import asking, calling
from tests.platforms.console.test_cards import ONE_KEY_PAUSE

SIZE = (180, 60)
DATA = frozenset(
    {
        "countersign",
        "demo",
        "model",
        "go",
        "apr",
        "notes",
        "add",
        "note",
        "text",
        "ana",
        "slack",
        "line",
        "utc",
        "enter",
        "lost",
    }
)
"""Words of names and arguments, and names of keys."""
TYPED = frozenset(word for command in COMMANDS for word in command.removeprefix("/").split()) | {
    "ctrl",
    "xyz",
    "mcp",
    "grants",
    "list",
}


def english(text: str) -> list[str]:
    return [word for word in untranslated_words(text) if word.lower() not in DATA | TYPED]


async def test_cards_their_keys_and_outcomes_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    long = "\n".join(f"line {n}" for n in range(9))

    with use_language(pseudo_language):
        async with chatting({"go": asking("", arguments={"text": long})}, size=SIZE) as chat:
            await chat.type("go", "[n]")
            for key, sign in (("v", "line 8"), ("g", "[1]"), ("z", "⟦One of the numbers"), ("\r", "[g]")):
                await asyncio.sleep(ONE_KEY_PAUSE)
                await chat.press(key, sign)
            await asyncio.sleep(ONE_KEY_PAUSE)
            await chat.press("n", "⟦reason (optional):⟧")
            assert english(chat.terminal.text) == []
            await chat.press("go\r", "⟦Not run. Told the agent: go⟧", "⟦denied⟧")
            assert english(chat.terminal.text) == []


async def test_help_and_hints_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    with use_language(pseudo_language):
        async with chatting({"go": calling("", StepStatus.UNKNOWN, "lost")}, size=SIZE) as chat:
            await chat.type("go", "⟦Did it run?")
            await chat.type("/help", "⟦leave (also Ctrl-D)⟧")
            await chat.type("/xyz", "⟦There is no /xyz.⟧")
            await chat.type("/new", "⟦A fresh conversation.⟧")
            assert english(chat.terminal.text) == []
