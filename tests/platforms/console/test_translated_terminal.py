"""The terminal's own texts are in the language of its user."""

from __future__ import annotations

import asyncio

from bot.domain.turns import StepStatus
from bot.i18n import use_language
from bot.platforms.console.typed_lines import COMMANDS
from tests.i18n.pseudo_language import untranslated
from tests.platforms.console.chat import chatting
from tests.platforms.console.scripted_engine import ScriptedTurn, an_approval
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
    return [word for word in untranslated(text) if word.lower() not in DATA | TYPED]


async def test_cards_their_keys_and_outcomes_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    long = "\n".join(f"line {n}" for n in range(9))

    async def script(turn: ScriptedTurn) -> None:
        await turn.ask(an_approval(), arguments={"text": long})
        await turn.end("")

    with use_language(pseudo_language):
        async with chatting({"go": script}, size=SIZE) as chat:
            await chat.type("go")
            await chat.terminal.shows("[n]")
            for key, sign in (("v", "line 8"), ("g", "[1]"), ("z", "⟦One of the numbers"), ("\r", "[g]")):
                await asyncio.sleep(ONE_KEY_PAUSE)
                chat.terminal.press(key)
                await chat.terminal.shows(sign)
            await asyncio.sleep(ONE_KEY_PAUSE)
            chat.terminal.press("n")
            await chat.terminal.shows("⟦reason (optional):⟧")
            assert english(chat.terminal.text) == []
            chat.terminal.press("go\r")
            await chat.terminal.shows("⟦Not run. Told the agent: go⟧", "⟦denied⟧")
            assert english(chat.terminal.text) == []


async def test_help_and_hints_have_no_text_outside_of_the_catalogue(pseudo_language: str) -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.UNKNOWN, "lost")
        await turn.end("")

    with use_language(pseudo_language):
        async with chatting({"go": script}, size=SIZE) as chat:
            await chat.type("go")
            await chat.terminal.shows("⟦Did it run?")
            await chat.type("/help")
            await chat.terminal.shows("⟦leave (also Ctrl-D)⟧")
            await chat.type("/xyz")
            await chat.terminal.shows("⟦There is no /xyz.⟧")
            await chat.type("/new")
            await chat.terminal.shows("⟦A fresh conversation.⟧")
            assert english(chat.terminal.text) == []
