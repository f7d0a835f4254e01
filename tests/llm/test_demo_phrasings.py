"""Natural phrasings that the demo model understands, with the tools of the bundled servers."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from bot.domain.messages import Message, assistant, user
from bot.domain.tools import Annotations, Tool
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.server import SAMPLE
from mcp_servers.knowledge.server import create_server as knowledge
from mcp_servers.notes.server import create_server as notes
from mcp_servers.weather.server import create_server as weather
from mcp_servers.weather.settings import SampleMode, Settings
from tests.llm.demo_offers import Asked, answered, reply


def offered(name: str, server: MCPServer[Any]) -> list[Tool]:
    return [
        Tool(
            f"{name}__{tool.name}",
            name,
            tool.name,
            tool.title or "",
            tool.description or "",
            tool.input_schema,
            annotations=Annotations(
                read_only=tool.annotations.read_only_hint, destructive=tool.annotations.destructive_hint
            )
            if tool.annotations
            else Annotations(),
        )
        for tool in asyncio.run(server.list_tools())
    ]


WEATHER = offered("weather", weather(Settings(sample=SampleMode.ALWAYS)))
NOTES = offered("notes", notes(Path("unused.json")))
with closing(Library(SAMPLE, None)) as library:
    DOCUMENTS = offered("knowledge", knowledge(library))
DEFAULT = (*WEATHER, *NOTES)


def forecast(area: str, **arguments: Any) -> Asked:
    return [("weather__forecast", {"area": area, **arguments})]


def add(text: str) -> Asked:
    return [("notes__add", {"text": text})]


def listed(**arguments: Any) -> Asked:
    return [("notes__list", arguments)]


def search(words: str) -> Asked:
    return [("notes__search", {"words": words})]


def delete(n: int) -> Asked:
    return [("notes__delete", {"id": n})]


def calls_of(message: Message) -> Asked:
    return [(call.name, dict(call.arguments)) for call in message.tool_calls]


FIRST_MESSAGES: list[tuple[str, Asked]] = [
    # the subject, in other words
    ("Do I need an umbrella in Sapporo tomorrow?", forecast("Sapporo")),
    ("Will it rain in Osaka?", forecast("Osaka")),
    ("is it going to rain in Nagoya tomorrow", forecast("Nagoya")),
    ("How cold is it in Sapporo?", forecast("Sapporo")),
    ("Do I need a jacket in Kyoto tonight?", forecast("Kyoto")),
    ("Is it sunny in Naha?", forecast("Naha")),
    ("Does it snow in Akita?", forecast("Akita")),
    ("what's the temperature in Tokyo", forecast("Tokyo")),
    ("weather Tokyo", forecast("Tokyo")),
    ("Tokyo weather", forecast("Tokyo")),
    ("Tokyo weather please", forecast("Tokyo")),
    ("give me the forecast for Fukuoka", forecast("Fukuoka")),
    ("Could you tell me the weather in Kobe?", forecast("Kobe")),
    ("I'd like to know the weather in Nara", forecast("Nara")),
    ("hey, what's the weather like in Sendai today?", forecast("Sendai")),
    # days
    ("weather in Tokyo this weekend", forecast("Tokyo", days=5)),
    ("What's the weather this weekend in Kyoto?", forecast("Kyoto", days=5)),
    ("forecast for Kobe on Sunday", forecast("Kobe", days=5)),
    ("weather in Tokyo the day after tomorrow", forecast("Tokyo")),
    ("5 days forecast for Nagoya", forecast("Nagoya", days=5)),
    # typing errors
    ("wether in tokio", forecast("Tokyo")),
    ("weahter in Osaka", forecast("Osaka")),
    ("forcast for Sapporo", forecast("Sapporo")),
    ("temprature in Kyoto", forecast("Kyoto")),
    ("weather in Osaka tommorow", forecast("Osaka")),
    ("serch my notes for milk", search("milk")),
    ("delte note 3", delete(3)),
    ("shwo my notes", listed()),
    # Japanese
    ("明日札幌で傘いる\uff1f", forecast("札幌")),
    ("東京の天気を教えて", forecast("東京")),
    ("大阪の天気は\uff1f", forecast("大阪")),
    ("週末の京都の天気", forecast("京都", days=5)),
    ("札幌は寒い\uff1f", forecast("札幌")),
    ("メモを追加: 牛乳を買う", add("牛乳を買う")),
    ("メモを見せて", listed()),
    # notes
    ("Please note: the office closes early on Friday", add("the office closes early on Friday")),
    ("remember that Ana likes tea", add("Ana likes tea")),
    ("remind me to call Bob", add("call Bob")),
    ("Could you save a note: buy milk?", add("buy milk?")),
    ("write down buy milk", add("buy milk")),
    ("Show my notes", listed()),
    ("what did I note?", listed()),
    ("do I have any notes?", listed()),
    ("show me the last 3 notes", listed(limit=3)),
    ("search my notes for milk", search("milk")),
    ("is there a note about the printer?", search("printer")),
    ("Delete note 1", delete(1)),
    ("remove note number 4 please", delete(4)),
    # two wishes
    ("Show my notes and tell me the weather in Tokyo", [*listed(), *forecast("Tokyo")]),
    ("What's the weather in Osaka? And show my notes.", [*forecast("Osaka"), *listed()]),
    ("list my notes, then delete note 2", [*listed(), *delete(2)]),
    ("weather in Tokyo and Osaka", [*forecast("Tokyo"), *forecast("Osaka")]),
]

TALK: list[tuple[str, str]] = [
    ("hello there", "Hello!"),
    ("good morning", "Hello!"),
    ("おはようございます", "Hello!"),
    ("how are you?", "I am well"),
    ("thanks, that helps", "You are welcome."),
    ("ありがとう", "You are welcome."),
    ("never mind", "All right."),
    ("forget it", "All right."),
    ("ok", "All right."),
    ("see you", "Goodbye!"),
    ("who are you?", "I am not an AI"),
    ("who made you?", "I am not an AI"),
    ("are you an AI?", "I am not an AI"),
    ("what model are you?", "I am not an AI"),
    ("how do you work?", "I am not an AI"),
    ("あなたは誰\uff1f", "I am not an AI"),
    ("what can you do?", "What I can reach"),
    ("what tools do you have?", "What I can reach"),
    ("How do I add a server?", "cannot explain that"),
    ("How can I save a note?", "cannot explain that"),
    ("how to delete a note", "cannot explain that"),
    ("how do I set up Slack", "cannot explain that"),
    ("Who may approve calls?", "no tool's words fit"),
    ("Why did you save that?", "no tool's words fit"),
    ("tell me a joke", "no tool's words fit"),
    ("translate this to French", "no tool's words fit"),
    ("do not save anything", "no tool's words fit"),
]

WEATHER_BEFORE = ("weather in Tokyo", "weather__forecast", {"area": "Tokyo"})
NOTE_DELETED = ("delete note 1", "notes__delete", {"id": 1})
NOTES_SEARCHED = ("search my notes for milk", "notes__search", {"words": "milk"})
FOLLOW_UPS: list[tuple[tuple[str, str, dict[str, Any]], str, Asked]] = [
    (WEATHER_BEFORE, "and on Sunday?", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "and this weekend?", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "what about tomorrow?", forecast("Tokyo")),
    (WEATHER_BEFORE, "How about Sapporo?", forecast("Sapporo")),
    (WEATHER_BEFORE, "and in Osaka?", forecast("Osaka")),
    (WEATHER_BEFORE, "what about osaka and kyoto", forecast("osaka and kyoto")),
    (WEATHER_BEFORE, "Osaka?", forecast("Osaka")),
    (WEATHER_BEFORE, "大阪は\uff1f", forecast("大阪")),
    (WEATHER_BEFORE, "and the weather on Sunday?", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "and my notes?", listed()),
    (NOTES_SEARCHED, "how about eggs?", search("eggs")),
    (NOTE_DELETED, "and note 2", delete(2)),
    (NOTE_DELETED, "thanks", []),
    (NOTE_DELETED, "never mind", []),
    (NOTE_DELETED, "yes", []),
    (NOTE_DELETED, "and on Sunday?", []),
    (WEATHER_BEFORE, "tell me a joke about something long and boring", []),
]


@pytest.mark.parametrize(("message", "wanted"), FIRST_MESSAGES, ids=[message for message, _ in FIRST_MESSAGES])
async def test_a_natural_phrasing_becomes_the_right_calls(message: str, wanted: Asked) -> None:
    assert calls_of(await reply([user(message)], DEFAULT)) == wanted


@pytest.mark.parametrize(("message", "opening"), TALK, ids=[message for message, _ in TALK])
async def test_talk_and_questions_about_itself_are_answered_without_a_call(message: str, opening: str) -> None:
    answer = await reply([user(message)], DEFAULT)
    assert answer.tool_calls == ()
    assert opening in answer.text


@pytest.mark.parametrize(
    ("before", "message", "wanted"), FOLLOW_UPS, ids=[f"{before[0]} / {message}" for before, message, _ in FOLLOW_UPS]
)
async def test_a_follow_up_changes_the_call_before_it(
    before: tuple[str, str, dict[str, Any]], message: str, wanted: Asked
) -> None:
    question, name, arguments = before
    answer = await reply(answered(question, name, "Done.", **arguments), DEFAULT)
    # Earlier turns come without their calls.
    assert calls_of(await reply([user(question), answer, user(message)], DEFAULT)) == wanted


@pytest.mark.parametrize("message", ["How do I add a server?", "How can I save a note?", "how to approve a call"])
async def test_a_question_how_something_is_done_is_looked_up_in_documents(message: str) -> None:
    assert calls_of(await reply([user(message)], (*DEFAULT, *DOCUMENTS))) == [("knowledge__search", {"query": message})]


async def test_an_answer_is_short_where_nothing_is_asked() -> None:
    before = [user("hi"), assistant("Hello!")]
    for message in ("thanks", "ok", "never mind", "bye"):
        assert len((await reply([*before, user(message)], DEFAULT)).text) < 20


async def test_yes_repeats_an_open_question() -> None:
    asked = await reply([user("delete a note")], DEFAULT)
    again = await reply([user("delete a note"), asked, user("yes")], DEFAULT)
    assert "I still need **id**" in again.text
    done = await reply([user("delete a note"), asked, user("yes"), again, user("3")], DEFAULT)
    assert calls_of(done) == delete(3)


def test_the_table_is_large() -> None:
    assert len(FIRST_MESSAGES) + len(TALK) + len(FOLLOW_UPS) >= 90
