"""A table of dialogues with the demo model as users type them: in two languages, with bundled and unknown servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.domain.messages import Message, TextPart, ToolCall, ToolResult, tool_results, user
from bot.domain.tools import Tool, check_question
from mcp_servers.knowledge.answers import search_answer
from mcp_servers.knowledge.library import Library
from mcp_servers.knowledge.server import GUIDES, NO_GUIDES, search_text
from mcp_servers.knowledge.tokenizer import question
from mcp_servers.notes.note import Notebook
from mcp_servers.notes.server import notes_answer, notes_text
from tests.llm.demo_offers import INVOICES, LAMPS, TEXT, TICKETS, UNITS, WHOLE, Asked, reply, tool
from tests.llm.test_demo_phrasings import DEFAULT, add, delete, documents, forecast, notes_listing, search

PROJECT = Path(__file__).resolve().parents[2]

# -------------------- expectations

HELLO, ABOUT, ABILITIES = "Hello!", "I am not an AI", "What I can reach"
THANKS, OK, BYE, GLADLY = "You are welcome.", "All right.", "Goodbye!", "Gladly."
NO_TOOL = "no tool's words fit"


@dataclass(frozen=True)
class Then:
    """Calls, and texts of the answer that follows them. A text with `-` before it must not be in the answer."""

    calls: Asked
    texts: tuple[str, ...] = ()


Expected = Asked | str | Then
"""The expected calls; or a text of the answer, without a call; or both."""
Dialogue = list[tuple[str, Expected]]


def then(calls: Asked, *texts: str) -> Then:
    return Then(calls, texts)


def asks(argument: str) -> str:
    return f"**{argument}**"


def one(name: str, /, **arguments: Any) -> Asked:
    return [(name, arguments)]


# -------------------- servers that the demo has never seen

STAMP = {**TEXT, "format": "date-time"}
CALENDAR = (
    tool(
        "calendar__create_event",
        "Create an event",
        "Put an event into the calendar.",
        {
            "title": TEXT,
            "date": {**TEXT, "format": "date"},
            "attendees": {"type": "array", "items": TEXT},
            "visibility": {"enum": ["public", "private"], "default": "public"},
            "place": {"type": "object", "properties": {"room": TEXT, "floor": WHOLE}, "required": ["room"]},
        },
        "title",
        "date",
        reads=False,
    ),
    tool(
        "calendar__list_events",
        "List events",
        "Events in the calendar, by day.",
        {"date": {**TEXT, "format": "date", "description": "Only events on this day"}, "limit": WHOLE},
        reads=True,
    ),
    tool("calendar__cancel_event", "Cancel an event", "", {"event_id": TEXT}, "event_id", reads=False),
)
DICE = (tool("dice__roll", "", "Roll a die.", {"sides": {**WHOLE, "default": 6}}),)
FILES = (
    tool("files__read_file", "Read a file", "The text of a file.", {"path": TEXT}, "path", reads=True),
    tool("files__search_files", "Search files", "Find files by name.", {"pattern": TEXT}, "pattern", reads=True),
    tool(
        "files__move_file",
        "Move a file",
        "Give a file another name or folder.",
        {"source": TEXT, "destination": TEXT},
        "source",
        "destination",
        reads=False,
    ),
)
CONTACTS = (
    tool("people__findContact", "", "Look up a colleague by name.", {"name": TEXT}, "name", reads=True),
    tool("people__remove_contact", "Remove a contact", "", {"contact_id": WHOLE}, "contact_id", reads=False),
)
TEMPERATURE = (
    tool(
        "thermo__set_temperature",
        "Set the temperature",
        "Heating of a room.",
        {"room": {"enum": ["kitchen", "office", "hall"]}, "celsius": {"type": "number", "minimum": 5, "maximum": 30}},
        "room",
        "celsius",
        reads=False,
    ),
)
OTHERS = (*CALENDAR, *DICE, *FILES, *CONTACTS, *TEMPERATURE, *TICKETS, *INVOICES, *UNITS, *LAMPS)


# -------------------- the table: today is Wednesday, 4 March 2026

SMALL_TALK: list[Dialogue] = [
    [("hi", HELLO)],
    [("Hello :)", HELLO)],
    [("hey bot", HELLO)],
    [("yo", HELLO)],
    [("hello, are you there?", HELLO)],
    [("good evening!", HELLO)],
    [("👋", HELLO)],
    [("test", HELLO)],
    [("is anybody here?", HELLO)],
    [("what can u do for me?", ABILITIES)],
    [("help", ABILITIES)],
    [("help me pls", ABILITIES)],
    [("which servers are connected?", ABILITIES)],
    [("what tools do you have access to?", ABILITIES)],
    [("show me what you can do", ABILITIES)],
    [("what is this?", ABOUT)],
    [("r u a bot", ABOUT)],
    [("are you chatgpt or claude?", ABOUT)],
    [("which model are you using?", ABOUT)],
    [("is this a real AI?", ABOUT)],
    [("ur name?", ABOUT)],
    [("thank u 🙏", THANKS)],
    [("perfect, thank you very much", THANKS)],
    [("ty", THANKS)],
    [("👍", OK)],
    [("ok cool", OK)],
    [("no", OK)],
    [("nope", OK)],
    [("nvm", OK)],
    [("yes", GLADLY)],
    [("yes please", GLADLY)],
    [("bye!", BYE)],
    [("good night", BYE)],
    [("write a python function that reverses a string", NO_TOOL)],
    [("🙂", NO_TOOL)],
    [("lol", OK)],
    [("you are useless", NO_TOOL)],
    [("I'm hungry", NO_TOOL)],
    [("deploy to production", NO_TOOL)],
    [("the office closes early on Friday", NO_TOOL)],
    [("please do not delete any notes", NO_TOOL)],
    [("don't save that", NO_TOOL)],
]

JAPANESE: list[Dialogue] = [
    [("こんにちは", HELLO)],
    [("はじめまして", HELLO)],
    [("ありがとう\uff01", THANKS)],
    [("助かりました", THANKS)],
    [("何ができるの\uff1f", ABILITIES)],
    [("ヘルプ", ABILITIES)],
    [("どんなツールが使えますか", ABILITIES)],
    [("あなたはAIですか\uff1f", ABOUT)],
    [("誰が作ったの\uff1f", ABOUT)],
    [("やっぱりいいです", OK)],
    [("いいえ", OK)],
    [("傘いるかな、週末の大阪", forecast("大阪", days=5))],
    [("明後日の京都の天気", forecast("京都"))],
    [("来週の土曜の福岡の天気は\uff1f", forecast("福岡", days=8))],
    [("今日の東京は暑い\uff1f", forecast("東京"))],
    [("3月7日の東京の天気", forecast("東京", days=4))],
    [("天気教えて", asks("area")), ("那覇", forecast("那覇"))],
    [("東京の天気は\uff1f", forecast("東京")), ("明日は\uff1f", forecast("東京")), ("大阪は\uff1f", forecast("大阪"))],
    [("東京の天気は\uff1f", forecast("東京")), ("日曜日は\uff1f", forecast("東京", days=5))],
    [("東京と大阪の天気", [*forecast("東京"), *forecast("大阪")])],
    [("メモして\uff1a牛乳を買う", add("牛乳を買う"))],
    [("「会議は3時」とメモして", add("会議は3時"))],
    [("会議は10時からって覚えておいて", add("会議は10時から"))],
    [("メモ見せて", notes_listing())],
    [("メモを一覧表示してください", notes_listing())],
    [("メモを3件見せて", notes_listing(limit=3))],
    [("牛乳のメモを探して", search("牛乳"))],
    [("牛乳のメモを消して", [*search("牛乳"), *delete(6)])],
    [("サーバーの追加方法を教えて", then(documents("サーバーの追加方法を教えて server show add"), "ja/README.md#"))],
    [("承認は誰がするの\uff1f", documents("承認は誰がするの\uff1f approv"))],
    [("メモを見せて。あと東京の天気も", [*notes_listing(), *forecast("東京")])],
]

WEATHER_WISHES: list[Dialogue] = [
    [("weahter osaka plz", forecast("osaka"))],
    [("is it going to rain in kyoto this weekend?", forecast("kyoto", days=5))],
    [("do i need a jacket in sapporo on friday", forecast("Sapporo"))],
    [("umbrella tomorrow in Nagoya??", forecast("Nagoya"))],
    [("Hey, could you please tell me what the weather will be like in Hiroshima tomorrow?", forecast("Hiroshima"))],
    [("weather next monday in Kobe", forecast("Kobe", days=6))],
    [("whats the weather in naha 2moro", forecast("naha"))],
    [("10 day forecast for sendai", forecast("sendai", days=8))],
    [("7-day forecast for Sendai", forecast("Sendai", days=7))],
    [("forecast kanazawa 5 days", forecast("kanazawa", days=5))],
    [("☔ in Osaka?", forecast("Osaka"))],
    [("Will Saturday be sunny in Nara?", forecast("Nara", days=4))],
    [("I'll be in Kyoto on Sunday, will it rain?", forecast("Kyoto", days=5))],
    [("Weather in Tokyo on March 7?", forecast("Tokyo", days=4))],
    [("weather in Tokyo on 2026-03-08", forecast("Tokyo", days=5))],
    [("how's the weather", asks("area")), ("Tokyo", forecast("Tokyo"))],
    [("will it rain tomorrow?", asks("area")), ("in sapporo", forecast("Sapporo"))],
    [("do i need an umbrella", asks("area")), ("never mind", OK)],
    [("weather", asks("area")), ("idk, osaka i guess", forecast("osaka"))],
    [("weather berlin", forecast("berlin")), ("and tomorrow?", forecast("berlin"))],
    [("weather in Tokyo", forecast("Tokyo")), ("and on Sunday?", forecast("Tokyo", days=5))],
    [("weather in Tokyo", forecast("Tokyo")), ("How about Sapporo?", forecast("Sapporo"))],
    [("weather in Tokyo", forecast("Tokyo")), ("sapporo?", forecast("Sapporo")), ("thx", THANKS)],
    [
        ("weather in Tokyo", forecast("Tokyo")),
        ("what about osaka", forecast("osaka")),
        ("and this weekend", forecast("osaka", days=5)),
    ],
    [("weather in Tokyo on Sunday", forecast("Tokyo", days=5)), ("and in Kobe?", forecast("Kobe", days=5))],
    [("weather in Tokyo", forecast("Tokyo")), ("is it warmer in Naha?", forecast("Naha"))],
    [("weather in Tokyo", forecast("Tokyo")), ("thanks! and Osaka?", forecast("Osaka"))],
    [("weather in Tokyo", forecast("Tokyo")), ("yes", GLADLY)],
    [("weather in Tokyo", forecast("Tokyo")), ("ok", OK), ("and Osaka?", forecast("Osaka"))],
    [
        ("weather in Tokyo", forecast("Tokyo")),
        ("show my notes", notes_listing()),
        ("and the weather in Kobe", forecast("Kobe")),
    ],
    [("weather in Tokyo", forecast("Tokyo")), ("who are you?", ABOUT)],
    [("Qué tiempo hace en Kyoto mañana?", forecast("Kyoto"))],
    [("Wie wird das Wetter morgen in Osaka?", forecast("Osaka"))],
    [("météo à Kyoto", forecast("Kyoto"))],
]

NOTE_WISHES: list[Dialogue] = [
    [("remind me that the dentist is at 3pm", add("the dentist is at 3pm"))],
    [("plz note milk and eggs", add("milk and eggs"))],
    [("Note to self: renew the passport!", add("renew the passport!"))],
    [("note that Anna is out on Monday", add("Anna is out on Monday"))],
    [('add a note saying "don\'t forget the milk"', add("don't forget the milk"))],
    [("could you write down that the wifi password is on the fridge?", add("the wifi password is on the fridge"))],
    [("can you remember that my flight is at 7?", add("my flight is at 7"))],
    [
        (
            "save a note: Weather report is due; delete the draft afterwards",
            add("Weather report is due; delete the draft afterwards"),
        )
    ],
    [("todo: call the bank", add("call the bank"))],
    [("remember: standup moved to 9:30", add("standup moved to 9:30"))],
    [("jot down: 2 tickets, row 5", add("2 tickets, row 5"))],
    [("can you book a flight to Paris", NO_TOOL)],
    [("Could you please create a jira ticket for the login bug?", NO_TOOL)],
    [("book a table for two", NO_TOOL)],
    [("write a poem about notes", NO_TOOL)],
    [("ok, open a pull request", NO_TOOL)],
    [("make a reminder to call mum", add("call mum"))],
    [
        (
            "Please note: "
            + "we agreed to meet every Tuesday at ten, in the big room, to go through open tickets. " * 6,
            add(("we agreed to meet every Tuesday at ten, in the big room, to go through open tickets. " * 6).strip()),
        )
    ],
    [("add a note", asks("text")), ("buy stamps", add("buy stamps"))],
    [("make a note please", asks("text")), ("no, forget it", OK)],
    [("take a note", asks("text")), ("what's the weather in Tokyo?", forecast("Tokyo"))],
    [("pls show me all notes", notes_listing())],
    [("shwo me my ntoes", notes_listing())],
    [("notes", notes_listing())],
    [("what have i saved in my notes?", notes_listing())],
    [("whats on my list of notes", notes_listing())],
    [("my last 2 notes pls", notes_listing(limit=2))],
    [("what notes do i have about the printer?", search("printer"))],
    [("did i note anything about bob?", search("bob"))],
    [("is there anything about milk in my notes", search("milk"))],
    [("find printer in my notes", search("printer"))],
    [("remove note 2", delete(2))],
    [("del note 2", delete(2))],
    [("delete #3", delete(3))],
    [("pls delete note number two", delete(2))],
    [("delete the note about milk", [*search("milk"), *delete(1)])],
    [("remove the one about the dentist from my notes", [*search("dentist"), *delete(3)])],
    [("delete the note about unicorns", then(search("unicorns"), "unicorns"))],
    [
        ("delete the note about the printer", then(search("printer"), "#2", "#4")),
        ("4", delete(4)),
    ],
    [("delete the note about the printer", then(search("printer"), "#2")), ("never mind", OK)],
    [("show my notes", notes_listing()), ("delete the second one", delete(5))],
    [("show my notes", notes_listing()), ("delete 3", delete(3))],
    [("show my notes", notes_listing()), ("Roll a die", NO_TOOL)],
    [("delete note 1", delete(1)), ("and 2", delete(2))],
    [("remove all notes", [*notes_listing(), *(call for n in (6, 5, 4, 3, 2, 1) for call in delete(n))])],
    [
        ("show my notes", notes_listing()),
        ("delete all of them", [call for n in (6, 5, 4, 3, 2, 1) for call in delete(n)]),
    ],
    [("delete all notes about the printer", [*search("printer"), *delete(4), *delete(2)])],
    [("メモを全部消して", [*notes_listing(), *(call for n in (6, 5, 4, 3, 2, 1) for call in delete(n))])],
    [("delete a note", asks("id")), ("the one about milk", [*search("milk"), *delete(1)])],
    [("note that X is done and show my notes", [*add("X is done"), *notes_listing()])],
    [
        (
            "take a note: call Bob tomorrow about the invoice, then show my notes",
            [*add("call Bob tomorrow about the invoice"), *notes_listing()],
        )
    ],
    [("show my notes and the weather in Tokyo", [*notes_listing(), *forecast("Tokyo")])],
    [("show my notes. Is it sunny in Kobe?", [*notes_listing(), *forecast("Kobe")])],
    [("note: search the documents for the weather forecast", add("search the documents for the weather forecast"))],
    [("weather in Kobe and remember to pack an umbrella", [*forecast("Kobe"), *add("pack an umbrella")])],
    [("zeig mir meine Notizen", notes_listing())],
    [("borra la nota 3", delete(3))],
    [("supprime la note 2", delete(2))],
]

QUESTIONS: list[Dialogue] = [
    [("How do I add a server?", then(documents("How do I add a server?"), "servers.md"))],
    [("how do i add my own mcp server??", documents("how do i add my own mcp server??"))],
    [("how to connect slack", documents("how to connect slack"))],
    [("who approves?", then(documents("who approves?"), "pprov"))],
    [("who may approve my calls", documents("who may approve my calls"))],
    [("what happens if I say no?", then(documents("what happens if I say no?"), "using.md#if-you-say-no"))],
    [("how do I get a real model?", "OPENAI_API_KEY")],
    [("can i use claude with this?", "ANTHROPIC_API_KEY")],
    [("where is my data stored?", then(documents("where is my data stored?"), "data"))],
    [("is my data sent anywhere?", documents("is my data sent anywhere?"))],
    [("what is a policy?", documents("what is a policy?"))],
    [("explain approvals", documents("explain approvals"))],
    [("search the docs for backup", then(documents("backup"), "ackup"))],
    [
        (
            "what is the capital of France?",
            then(documents("what is the capital of France?"), "demo model", "-[", "-.md#"),
        )
    ],
    [("who won the world cup in 2022?", then(documents("who won the world cup in 2022?"), "demo model", "-.md#"))],
    [("whats 17 * 23", NO_TOOL)],
    [("can you speak French?", then(documents("can you speak French?"), "demo model"))],
]

UNKNOWN_SERVERS: list[Dialogue] = [
    [("roll a die", one("dice__roll"))],
    [("roll a d20 please, I mean 20 sides", one("dice__roll", sides=20))],
    [("roll a 12 sided die", one("dice__roll", sides=12))],
    [("Roll a dice!", one("dice__roll"))],
    [("whats on my calendar tomorrow", one("calendar__list_events", date="2026-03-05"))],
    [("what events do I have on Friday?", one("calendar__list_events", date="2026-03-06"))],
    [
        ("list events", one("calendar__list_events")),
        ("and on monday?", one("calendar__list_events", date="2026-03-09")),
    ],
    [
        (
            'create an event "Lunch with Ana" on 2026-03-10',
            one("calendar__create_event", title="Lunch with Ana", date="2026-03-10"),
        )
    ],
    [("create an event tomorrow: Retro", one("calendar__create_event", title="Retro", date="2026-03-05"))],
    [
        (
            'create a private event "Review" next monday, attendees: ana, bob',
            one(
                "calendar__create_event",
                title="Review",
                date="2026-03-09",
                attendees=["ana", "bob"],
                visibility="private",
            ),
        )
    ],
    [
        ("create an event called Lunch", asks("date")),
        ("friday", one("calendar__create_event", title="Lunch", date="2026-03-06")),
    ],
    [
        ("create event", asks("title")),
        ("title: Standup, date: 2026-03-09", one("calendar__create_event", title="Standup", date="2026-03-09")),
    ],
    [("cancel event EV-17", one("calendar__cancel_event", event_id="EV-17"))],
    [("cancel the event", asks("event id")), ("EV-3", one("calendar__cancel_event", event_id="EV-3"))],
    [("read the file notes/todo.txt", one("files__read_file", path="notes/todo.txt"))],
    [("open README.md", one("files__read_file", path="README.md"))],
    [("find files named report", one("files__search_files", pattern="report"))],
    [("move the file a.txt to archive/b.txt", one("files__move_file", source="a.txt", destination="archive/b.txt"))],
    [("find the contact Maria", one("people__findContact", name="Maria"))],
    [("look up Bob in my contacts", one("people__findContact", name="Bob"))],
    [("remove contact 7", one("people__remove_contact", contact_id=7))],
    [("set the temperature in the kitchen to 21.5", one("thermo__set_temperature", room="kitchen", celsius=21.5))],
    [
        ("set the temperature in the attic to 20", asks("room")),
        ("office", one("thermo__set_temperature", room="office", celsius=20)),
    ],
    [("set the temperature of the hall to 200", asks("celsius"))],
    [("open a ticket: the VPN is down", one("desk__createTicket", title="the VPN is down", priority="normal"))],
    [("creat a ticket: the VPN is down", one("desk__createTicket", title="the VPN is down", priority="normal"))],
    [("close ticket 42", one("desk__close_ticket", ticket_id=42)), ("and 43", one("desk__close_ticket", ticket_id=43))],
    [("assign ticket 7 to Maria please", one("desk__assign_ticket", ticket_id=7, assignee="Maria"))],
    [
        ("show overdue invoices", one("billing__list_invoices", status="overdue")),
        ("and the paid ones?", one("billing__list_invoices", status="paid")),
    ],
    [
        (
            "pls convert 10 km to miles",
            one("units__convert", value=10, from_unit="km", to_unit="miles"),
        )
    ],
    [("turn off the kitchen pls", one("home__turn_off", room="kitchen"))],
    [("turn on the lamp in the hall", one("home__turn_on", room="hall"))],
    [("how do I close a ticket?", "cannot explain that")],
    [("who closes tickets?", "cannot explain that")],
    [("weather in Tokyo", NO_TOOL)],
    [("add a note: hello", NO_TOOL)],
    [("saikoro o futte", NO_TOOL)],
    [("チケット42を閉じて", one("desk__close_ticket", ticket_id=42))],
    [("明日の予定は\uff1f", one("calendar__list_events", date="2026-03-05"))],
    [("what can you do?", ABILITIES)],
]

FOUND: list[Dialogue] = [
    [("so what is this thing?", ABOUT)],
    [("what would you suggest I try first", ABILITIES)],
    [("show me an example", ABILITIES)],
    [("what can the notes server do", ABILITIES)],
    [("i dont understand", ABILITIES)],
    [("que puedes hacer?", ABILITIES)],
    [("good job!", THANKS)],
    [("book a flight to Tokyo", NO_TOOL)],
    [("what time is it", "I only know the day")],
    [("do you store my messages?", documents("do you store my messages?"))],
    [("I want to add a server", documents("I want to add a server"))],
    [("who can see my notes?", documents("who can see my notes?"))],
    [("is it safe to delete notes?", documents("is it safe to delete notes?"))],
    [("can my boss see what i ask?", documents("can my boss see what i ask?"))],
    [("how much does it cost", documents("how much does it cost"))],
    [("what's the policy for deleting notes?", documents("what's the policy for deleting notes?"))],
    [("do I need sunscreen in Okinawa?", forecast("Okinawa"))],
    [("is there a typhoon coming to Kagoshima", forecast("Kagoshima"))],
    [("hot or cold in Tokyo on Saturday?", forecast("Tokyo", days=4))],
    [("Wetter Tokio bitte", forecast("Tokyo"))],
    [("weather in Kobe", forecast("Kobe")), ("what about Sapporo and Naha", [*forecast("Sapporo"), *forecast("Naha")])],
    [("weather in Kobe", forecast("Kobe")), ("how much does it cost", documents("how much does it cost"))],
    [("weather in Kobe", forecast("Kobe")), ("i dont understand", ABILITIES), ("restart", NO_TOOL)],
    [("weather in Kobe", forecast("Kobe")), ("show my notes", notes_listing()), ("connect my github", NO_TOOL)],
    [('Save "Team lunch on Thursday at 12" as a note', add("Team lunch on Thursday at 12"))],
    [("can you also remember Anna's birthday is May 4", add("Anna's birthday is May 4"))],
    [("remember to log in to the portal", add("log in to the portal"))],
    [("show my notes", notes_listing()), ("get rid of the dentist note", [*search("dentist"), *delete(3)])],
    [("find notes about the dentist", search("dentist")), ("delete it", delete(3))],
    [("これは何\uff1f", ABOUT)],
    [("何から始めればいい\uff1f", ABILITIES)],
    [("やっぱりやめる", OK)],
    [("じゃあね", BYE)],
    [("データはどこに保存されますか", documents("データはどこに保存されますか"))],
    [("Slackで使うには\uff1f", documents("Slackで使うには\uff1f"))],
    [("会議室の予約は金曜ってメモしといて", add("会議室の予約は金曜"))],
    [("牛乳を買うってメモして", add("牛乳を買う"))],
    [("パスポート更新とメモしてもらえますか", add("パスポート更新"))],
    [("本物のAIを使いたい", "OPENAI_API_KEY")],
]
"""Messages of users that earlier versions misunderstood."""

CHECKS: list[Dialogue] = [
    [(check_question("notes__add", {"text": "buy milk"}), notes_listing())],
    [(check_question("notes__delete", {"id": 3}), notes_listing())],
    [(check_question("notes__add", {"text": "delete note 3"}), notes_listing())],
]
"""A call that may or may not have run leads to a read of its server, never to a second write."""

DAY = "Today is Wednesday, 4 March 2026."
MORE_SERVERS = (
    tool("clock__get_current_time", "Current time", "Get the current time.", {}, reads=True),
    *(tool(f"{name}__list_notes", "List notes", "All my notes.", {}, reads=True) for name in ("notion", "obsidian")),
    *(tool(f"{name}__show_my_notes", "Show my notes", "Show my notes.", {}, reads=True) for name in ("apple", "keep")),
    *(tool(f"s{n}__add_note", "Note", "Please note it.", {"text": TEXT, "title": TEXT}, "title") for n in range(20)),
    *(tool(f"w{n}__rain", "Rain", "Umbrella weather.", {"city": TEXT}, "city", reads=True) for n in range(9)),
)
BESIDE_OTHERS: list[Dialogue] = [
    [("Do I need an umbrella in Sapporo tomorrow?", forecast("Sapporo"))],
    [("Please note: the office closes early on Friday", add("the office closes early on Friday"))],
    [("Show my notes", notes_listing())],
    [("Delete note 1", delete(1))],
    [("What time is it?", one("clock__get_current_time"))],
    [("Show my Apple notes", one("apple__show_my_notes"))],
]
"""Sentences of README with forty other tools, and one that names another server."""
ASIDES: list[Dialogue] = [
    [
        ("Show my notes", notes_listing()),
        *((text, OK) for text in ("Cancel that", "never mind", "drop it", "Stop that.")),
    ],
    [("Show my notes", notes_listing()), ("Undo that", "cannot take back"), ("revert it, please", "cannot take back")],
    [(text, DAY) for text in ("What day is it today?", "what's the date?", "What time is it?", "今日は何曜日？")],
    [
        ("Do I need an umbrella in Sapporo tomorrow?", forecast("Sapporo")),
        *((text, NO_TOOL) for text in ("roll a die", "Flip a coin", "roll dice")),
    ],
    [
        ("Delete note 404", then(delete(404), "brought no result")),
        *((text, "Priya turned this call down.") for text in ("Why was my call denied?",)),
        ("Why was it rejected?", "No call failed"),
    ],
]

TABLE: list[tuple[Dialogue, tuple[Tool, ...]]] = [
    *(
        (dialogue, DEFAULT)
        for part in (SMALL_TALK, JAPANESE, WEATHER_WISHES, NOTE_WISHES, QUESTIONS, FOUND, CHECKS, ASIDES)
        for dialogue in part
    ),
    *((dialogue, (*DEFAULT, *MORE_SERVERS)) for dialogue in BESIDE_OTHERS),
    *((dialogue, OTHERS) for dialogue in UNKNOWN_SERVERS),
]


# -------------------- run of a dialogue

_WRITTEN = datetime(2026, 3, 1, tzinfo=UTC)


def _notebook() -> Notebook:
    book = Notebook()
    for text in (
        "buy milk and eggs",
        "call Bob about the printer",
        "the dentist is at 3pm",
        "the printer on floor 2 is broken",
        "Anna likes tea",
        "牛乳を買う",
    ):
        book = book.with_note(text, _WRITTEN)
    return book


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with closing(Library(GUIDES, None, excluded=NO_GUIDES)) as guides:
        for _ in guides.refresh():
            pass
        yield guides


def _result(call: ToolCall, library: Library) -> ToolResult:
    """Return the result of a bundled server; a plain sentence for other servers."""
    data: Any = None
    text = "Done."
    if call.name == "knowledge__search":
        asked = question(str(call.arguments["query"]))
        answer = search_answer(library.search(asked, 5) if asked else (), asked, complete=True)
        text, data = search_text(answer, asked), answer.model_dump(mode="json")
    elif call.name in ("notes__search", "notes__list"):
        book = _notebook()
        words = call.arguments.get("words")
        notes = book.search(words) if words else tuple(reversed(book.notes))
        text, data = notes_text(notes, "notes", left_out=0), notes_answer(notes, len(notes)).model_dump(mode="json")
    elif call.arguments.get("id") == 404:
        return ToolResult(call.id, (TextPart("Priya turned this call down. It was not run."),), is_error=True)
    return ToolResult(call.id, (TextPart(text),), structured=data)


async def say(messages: list[Message], tools: tuple[Tool, ...], library: Library) -> tuple[Asked, str]:
    """Run the model's turn for the last of `messages` and append its answer, without the calls, as a history does.

    Return the calls in order, and the answer.
    """
    calls: Asked = []
    turn: list[Message] = []
    for _ in range(6):
        message = await reply([*messages, *turn], tools)
        turn.append(message)
        if not message.tool_calls:
            break
        calls += [(call.name, dict(call.arguments)) for call in message.tool_calls]
        turn.append(tool_results(*(_result(call, library) for call in message.tool_calls)))
    messages.append(turn[-1])
    return calls, turn[-1].text


def mismatch(expected: Expected, calls: Asked, text: str) -> str:
    """Return the deviations of a turn from the expectation; empty if there are none."""
    match expected:
        case Then(calls=wanted, texts=texts):
            pass
        case str() as text_wanted:
            wanted, texts = [], (text_wanted,)
        case _:
            wanted, texts = expected, ()
    wrong = [f"calls {json.dumps(calls, ensure_ascii=False)}"] if calls != wanted else []
    wrong += [f"answer {text!r}" for part in texts if (part.removeprefix("-") in text) is part.startswith("-")]
    return "; ".join(wrong)


@pytest.mark.parametrize(
    ("dialogue", "tools"), TABLE, ids=[" / ".join(message[:60] for message, _ in dialogue) for dialogue, _ in TABLE]
)
async def test_a_dialogue_goes_as_people_expect(dialogue: Dialogue, tools: tuple[Tool, ...], library: Library) -> None:
    messages: list[Message] = []
    for message, expected in dialogue:
        messages.append(user(message))
        calls, text = await say(messages, tools, library)
        assert not mismatch(expected, calls, text), message


def test_the_table_has_more_than_150_dialogues() -> None:
    assert len(TABLE) > 150
