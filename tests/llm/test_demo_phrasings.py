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
from mcp_servers.knowledge.server import GUIDES
from mcp_servers.knowledge.server import create_server as knowledge
from mcp_servers.notes.server import create_server as notes
from mcp_servers.weather.server import create_server as weather
from mcp_servers.weather.settings import SampleMode, Settings
from tests.llm.demo_offers import Asked, reply, tool_round


def server_tools(name: str, server: MCPServer[Any]) -> list[Tool]:
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


WEATHER = server_tools("weather", weather(Settings(sample=SampleMode.ALWAYS)))
NOTES = server_tools("notes", notes(Path("unused.json")))
with closing(Library(GUIDES, None)) as library:
    DOCUMENTS = server_tools("knowledge", knowledge(library))
DEFAULT = (*WEATHER, *NOTES, *DOCUMENTS)


def forecast(area: str, **arguments: Any) -> Asked:
    return [("weather__forecast", {"area": area, **arguments})]


def add(text: str) -> Asked:
    return [("notes__add", {"text": text})]


def notes_listing(**arguments: Any) -> Asked:
    return [("notes__list", arguments)]


def search(words: str) -> Asked:
    return [("notes__search", {"words": words})]


def documents(query: str) -> Asked:
    return [("knowledge__search", {"query": query})]


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
    ("is it cold in osaka right now?", forecast("osaka")),
    ("do i need sunglasses in Naha tomorrow?", forecast("Naha")),
    ("What should I wear in Sapporo tomorrow?", forecast("Sapporo")),
    ("Weather: Tokyo", forecast("Tokyo")),
    ("What's it like outside in Tokyo?", forecast("Tokyo")),
    ("umbrella in Osaka?", forecast("Osaka")),
    ("rain tomorrow in Tokyo?", forecast("Tokyo")),
    ("can you check the weather for Kyoto please", forecast("Kyoto")),
    ("I'm going to Nara tomorrow, will it rain?", forecast("Nara")),
    ("Will it be windy in Kobe?", forecast("Kobe")),
    ("Weather overview for Kyoto", [("weather__overview", {"area": "Kyoto"})]),
    ("find the area code of Osaka", [("weather__find_area", {"name": "Osaka"})]),
    # days
    ("weather in Tokyo this weekend", forecast("Tokyo", days=5)),
    ("What's the weather this weekend in Kyoto?", forecast("Kyoto", days=5)),
    ("forecast for Kobe on Sunday", forecast("Kobe", days=5)),
    ("weather in Tokyo the day after tomorrow", forecast("Tokyo")),
    ("5 days forecast for Nagoya", forecast("Nagoya", days=5)),
    ("Should I take an umbrella to Kobe on Saturday?", forecast("Kobe", days=4)),
    ("What will the weather be like in Hiroshima on Friday?", forecast("Hiroshima")),
    ("weather for the next 4 days in Kobe", forecast("Kobe", days=4)),
    ("how hot will it get in Nagoya on saturday", forecast("Nagoya", days=4)),
    ("weather in Kyoto for a week", forecast("Kyoto", days=7)),
    ("weather in Kobe in 5 days", forecast("Kobe", days=5)),
    ("We are flying to Naha this weekend. Do we need umbrellas?", forecast("Naha", days=5)),
    # typing errors
    ("wether in tokio", forecast("Tokyo")),
    ("weahter in Osaka", forecast("Osaka")),
    ("forcast for Sapporo", forecast("Sapporo")),
    ("temprature in Kyoto", forecast("Kyoto")),
    ("weather in Osaka tommorow", forecast("Osaka")),
    ("serch my notes for milk", search("milk")),
    ("delte note 3", delete(3)),
    ("shwo my notes", notes_listing()),
    ("wheather in sapporo tommorrow?", forecast("Sapporo")),
    ("remeber to buy bread", add("buy bread")),
    ("show my ntoes", notes_listing()),
    ("umbrela in Kobe?", forecast("Kobe")),
    ("waht is the wether in Osaka", forecast("Osaka")),
    # Japanese
    ("明日札幌で傘いる\uff1f", forecast("札幌")),
    ("東京の天気を教えて", forecast("東京")),
    ("大阪の天気は\uff1f", forecast("大阪")),
    ("週末の京都の天気", forecast("京都", days=5)),
    ("札幌は寒い\uff1f", forecast("札幌")),
    ("メモを追加: 牛乳を買う", add("牛乳を買う")),
    ("メモを見せて", notes_listing()),
    ("明日の大阪は雨\uff1f", forecast("大阪")),
    ("日曜日の東京の天気", forecast("東京", days=5)),
    ("札幌は明日雪が降る\uff1f", forecast("札幌")),
    ("今日の天気、東京", forecast("東京")),
    ("京都は傘がいりますか\uff1f", forecast("京都")),
    ("メモ一覧", notes_listing()),
    ("メモ3を削除", delete(3)),
    ("牛乳を買うとメモして", add("牛乳を買う")),
    ("牛乳を買う、とメモして", add("牛乳を買う")),
    ("メモに牛乳を追加して", add("牛乳")),
    ("メモから牛乳を探して", search("牛乳")),
    # notes
    ("Please note: the office closes early on Friday", add("the office closes early on Friday")),
    ("remember that Ana likes tea", add("Ana likes tea")),
    ("remind me to call Bob", add("call Bob")),
    ("Could you save a note: buy milk?", add("buy milk?")),
    ("write down buy milk", add("buy milk")),
    ("Show my notes", notes_listing()),
    ("what did I note?", notes_listing()),
    ("do I have any notes?", notes_listing()),
    ("show me the last 3 notes", notes_listing(limit=3)),
    ("search my notes for milk", search("milk")),
    ("is there a note about the printer?", search("printer")),
    ("Delete note 1", delete(1)),
    ("remove note number 4 please", delete(4)),
    ("note to self: call the dentist", add("call the dentist")),
    ("make a note that the printer is broken", add("the printer is broken")),
    ("take a note: meeting moved to 3pm", add("meeting moved to 3pm")),
    ("new note: water the plants", add("water the plants")),
    ("save this: the code is 1234", add("the code is 1234")),
    ("pls remember the standup is at 10", add("the standup is at 10")),
    ("put eggs on my notes", add("eggs")),
    ("Please remember: never deploy on Friday", add("never deploy on Friday")),
    ("show all notes", notes_listing()),
    ("what's in my notes?", notes_listing()),
    ("what have I noted so far?", notes_listing()),
    ("the latest 2 notes", notes_listing(limit=2)),
    ("any notes about the printer?", search("printer")),
    ("do I have a note about milk?", search("milk")),
    ("look for milk in my notes", search("milk")),
    ("which notes mention Ana?", search("Ana")),
    ("get rid of note 3", delete(3)),
    ("erase the note with id 2", delete(2)),
    ("please delete note no. 5", delete(5)),
    # documents
    ("search the documents for approvals", documents("approvals")),
    ("what documents are there?", [("knowledge__list", {})]),
    ("what do the guides say about approvals?", documents("approvals")),
    ("How do I add a server?", documents("How do I add a server?")),
    ("How can I save a note?", documents("How can I save a note?")),
    ("how to approve a call", documents("how to approve a call")),
    ("how does approval work?", documents("how does approval work?")),
    ("Who may approve calls?", documents("Who may approve calls?")),
    ("What happens when nobody approves a call?", documents("What happens when nobody approves a call?")),
    ("Where do I set a policy?", documents("Where do I set a policy?")),
    # two requests
    ("Show my notes and tell me the weather in Tokyo", [*notes_listing(), *forecast("Tokyo")]),
    ("What's the weather in Osaka? And show my notes.", [*forecast("Osaka"), *notes_listing()]),
    ("list my notes, then delete note 2", [*notes_listing(), *delete(2)]),
    ("weather in Tokyo and Osaka", [*forecast("Tokyo"), *forecast("Osaka")]),
    ("Will it rain in Tokyo or Osaka?", [*forecast("Tokyo"), *forecast("Osaka")]),
    # phrasings that were written before the first run with the demo
    ("is it gonna rain in Tokyo", forecast("Tokyo")),
    ("How warm will it be in Osaka tomorrow?", forecast("Osaka")),
    ("Will I need a coat in Sapporo this weekend?", forecast("Sapporo", days=5)),
    ("tokyo forecast", forecast("Tokyo")),
    ("forecast, Osaka", forecast("Osaka")),
    ("What is the weather in Sapporo?", forecast("Sapporo")),
    ("weather for Nagoya please", forecast("Nagoya")),
    ("whats the wether in kyoto", forecast("kyoto")),
    ("can i go out without an umbrella in Kobe today?", forecast("Kobe")),
    ("Tell me about the weather in Naha", forecast("Naha")),
    ("How is the weather in Nara?", forecast("Nara")),
    ("I want to know if it snows in Sapporo", forecast("Sapporo")),
    ("what will the weather be in Osaka on monday", forecast("Osaka", days=6)),
    ("rain in Osaka?", forecast("Osaka")),
    ("大阪の明日の天気は\uff1f", forecast("大阪")),
    ("福岡の天気", forecast("福岡")),
    ("明日京都は寒いですか", forecast("京都")),
    ("名古屋で傘は必要\uff1f", forecast("名古屋")),
    ("土曜日の札幌の天気を教えて", forecast("札幌", days=4)),
    ("メモを全部見せて", notes_listing()),
    ("メモ2を消して", delete(2)),
    ("覚えて: 会議は3時", add("会議は3時")),
    ("Remember that the deadline is Friday", add("the deadline is Friday")),
    ("remind me that the door code is 4711", add("the door code is 4711")),
    ("Note that Bob is on holiday next week", add("Bob is on holiday next week")),
    ("save: buy milk", add("buy milk")),
    ("create a note saying hello", add("hello")),
    ("Write a note: ask Ana about the budget", add("ask Ana about the budget")),
    ('add "call the bank" to my notes', add("call the bank")),
    ("list notes", notes_listing()),
    ("give me my notes", notes_listing()),
    ("can I see my notes?", notes_listing()),
    ("are there any notes?", notes_listing()),
    ("show me the last 5 notes", notes_listing(limit=5)),
    ("find the note about the printer", search("printer")),
    ("find notes with milk", search("milk")),
    ("delete note 7 please", delete(7)),
    ("Can you delete note 2?", delete(2)),
    ("I don't need note 3 anymore, delete it", delete(3)),
    ("delete the note number 9", delete(9)),
    ("drop note 4", delete(4)),
    ("What's the weather in Tokyo, and show my notes", [*forecast("Tokyo"), *notes_listing()]),
    ("delete note 3 and show my notes", delete(3)),  # the notes are listed after that
    ("weather in Tokyo, Osaka and Naha", [*forecast("Tokyo"), *forecast("Osaka"), *forecast("Naha")]),
    ("add a note: buy eggs; weather in Kobe", [*add("buy eggs"), *forecast("Kobe")]),
    ("how do approvals work?", documents("how do approvals work?")),
    ("how do I set a policy", documents("how do I set a policy")),
    ("what is an approval card?", documents("what is an approval card?")),
    ("how can I connect Slack?", documents("how can I connect Slack?")),
    ("search the handbook for tokens", documents("tokens")),
    ("list the documents", [("knowledge__list", {})]),
    ("Remember to call Bob and show my notes", add("call Bob")),
    (
        "weather in Sapporo tomorrow and remind me to pack a scarf",
        [*forecast("Sapporo"), *add("pack a scarf")],
    ),
    ("show my notes. Also, what's the weather in Kobe?", [*notes_listing(), *forecast("Kobe")]),
    ("Delete note 1 and note 2", [*delete(1), *delete(2)]),
    ("delete notes 1 and 2", [*delete(1), *delete(2)]),
    ("umbrella in Kobe tomorrow? and add a note: buy bread", [*forecast("Kobe"), *add("buy bread")]),
    ("メモを見せて、東京の天気も教えて", [*notes_listing(), *forecast("東京")]),
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
    ("thx", "You are welcome."),
    ("great, thanks", "You are welcome."),
    ("thank you so much!", "You are welcome."),
    ("no thanks", "All right."),
    ("nevermind", "All right."),
    ("I changed my mind", "All right."),
    ("Is this an AI?", "I am not an AI"),
    ("what is Countersign?", "I am not an AI"),
    ("what do you do?", "What I can reach"),
    ("what can i ask you?", "What I can reach"),
    ("can you help me?", "What I can reach"),
    ("what else can you do", "What I can reach"),
    ("使い方は\uff1f", "What I can reach"),
    ("Why did you save that?", "no tool's words fit"),
    ("order me a pizza", "no tool's words fit"),
    ("what is 2+2?", "no tool's words fit"),
    ("play some music", "no tool's words fit"),
    ("please don't delete anything", "no tool's words fit"),
    ("asdfgh", "no tool's words fit"),
    ("thanks for the help", "You are welcome."),
    ("stop", "All right."),
    ("who am I talking to?", "I am not an AI"),
    ("sing a song", "no tool's words fit"),
    ("write a poem", "no tool's words fit"),
    ("call my mom", "no tool's words fit"),
    ("turn on the lights", "no tool's words fit"),
    ("set an alarm for 7", "no tool's words fit"),
    ("?", "no tool's words fit"),
    ("wow", "no tool's words fit"),
    ("I love you", "no tool's words fit"),
    ("you are stupid", "no tool's words fit"),
    ("don't delete note 3", "no tool's words fit"),
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
    (WEATHER_BEFORE, "what about osaka and kyoto", [*forecast("osaka"), *forecast("kyoto")]),
    (WEATHER_BEFORE, "Osaka?", forecast("Osaka")),
    (WEATHER_BEFORE, "大阪は\uff1f", forecast("大阪")),
    (WEATHER_BEFORE, "and the weather on Sunday?", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "and my notes?", notes_listing()),
    (WEATHER_BEFORE, "tomorrow?", forecast("Tokyo")),
    (WEATHER_BEFORE, "and what about Nagoya tomorrow?", forecast("Nagoya")),
    (WEATHER_BEFORE, "on Saturday?", forecast("Tokyo", days=4)),
    (WEATHER_BEFORE, "same for Osaka", forecast("Osaka")),
    (WEATHER_BEFORE, "Now Sapporo please", forecast("Sapporo")),
    (WEATHER_BEFORE, "will it rain there on Sunday?", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "do I need an umbrella?", forecast("Tokyo")),
    (WEATHER_BEFORE, "for 5 days", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "京都は\uff1f", forecast("京都")),
    (WEATHER_BEFORE, "日曜日は\uff1f", forecast("Tokyo", days=5)),
    (WEATHER_BEFORE, "thanks!", []),
    (WEATHER_BEFORE, "what can you do?", []),
    (WEATHER_BEFORE, "remember to buy an umbrella", add("buy an umbrella")),
    (NOTES_SEARCHED, "and bread?", search("bread")),
    (NOTE_DELETED, "also note 4", delete(4)),
    (NOTE_DELETED, "and 5", delete(5)),
    (NOTES_SEARCHED, "how about eggs?", search("eggs")),
    (NOTE_DELETED, "and note 2", delete(2)),
    (NOTE_DELETED, "thanks", []),
    (NOTE_DELETED, "never mind", []),
    (NOTE_DELETED, "yes", []),
    (NOTE_DELETED, "and on Sunday?", []),
    (WEATHER_BEFORE, "tell me a joke about something long and boring", []),
]

ANSWERS: list[tuple[list[str], Asked]] = [
    # messages of one user in order, all but the last answered with a question: the last completes the call
    (["weather", "Tokyo"], forecast("Tokyo")),
    (["how is the weather?", "in Osaka please"], forecast("Osaka")),
    (["what's the weather this weekend?", "Kyoto"], forecast("Kyoto", days=5)),
    (["will it rain tomorrow?", "Sapporo"], forecast("Sapporo")),
    (["天気は\uff1f", "大阪"], forecast("大阪")),
    (["add a note", "buy milk"], add("buy milk")),
    (["take a note", "yes", "call Bob on Monday"], add("call Bob on Monday")),
    (["search my notes", "milk"], search("milk")),
    (["delete a note", "the 3rd"], delete(3)),
    (["delete a note", "yes", "3"], delete(3)),
    (["delete a note", "never mind"], []),
    (["add a note", "no"], []),
    (["delete a note", "show my notes"], notes_listing()),
    (["add a note", "what's the weather in Tokyo?"], forecast("Tokyo")),
    (["weather", "what can you do?"], []),
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
    answer = await reply(tool_round(question, name, "Done.", **arguments), DEFAULT)
    # Earlier turns come without their calls.
    assert calls_of(await reply([user(question), answer, user(message)], DEFAULT)) == wanted


@pytest.mark.parametrize(("messages", "wanted"), ANSWERS, ids=[" / ".join(messages) for messages, _ in ANSWERS])
async def test_an_answer_to_a_question_completes_the_call(messages: list[str], wanted: Asked) -> None:
    transcript: list[Message] = []
    for message in messages:
        assert not transcript or not transcript[-1].tool_calls
        transcript.append(user(message))
        transcript.append(await reply(transcript, DEFAULT))
    assert calls_of(transcript[-1]) == wanted


@pytest.mark.parametrize("message", ["How do I add a server?", "How can I save a note?", "how to delete a note"])
async def test_without_documents_a_question_how_something_is_done_is_no_request(message: str) -> None:
    answer = await reply([user(message)], (*WEATHER, *NOTES))
    assert answer.tool_calls == ()
    assert "cannot explain that" in answer.text


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
    assert len(FIRST_MESSAGES) + len(TALK) + len(FOLLOW_UPS) + len(ANSWERS) >= 250
