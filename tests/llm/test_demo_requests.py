"""Tool calls of the demo model: which tool, which arguments, and when it asks the user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.completions import Completion, ModelRequest, StopReason, ToolChoice
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant, system, tool_results, user
from bot.domain.tools import Tool
from tests.llm.demo_offers import (
    EVERYTHING,
    INVOICES,
    LAMPS,
    NOTES,
    TEXT,
    TICKETS,
    WEATHER,
    calls,
    events,
    reply,
    tool,
    tool_round,
)

ONE_CALL: list[tuple[str, str, dict[str, Any]]] = [
    ("save a note: buy milk", "notes__add_note", {"text": "buy milk"}),
    ("remember to buy milk", "notes__add_note", {"text": "buy milk"}),
    ("Don't forget to call Bob", "notes__add_note", {"text": "call Bob"}),
    ("please remember that Ana likes tea", "notes__add_note", {"text": "Ana likes tea"}),
    ("note down buy milk", "notes__add_note", {"text": "buy milk"}),
    ("note: buy milk", "notes__add_note", {"text": "buy milk"}),
    ("add buy milk to my notes", "notes__add_note", {"text": "buy milk"}),
    ('add a note: call "Bob" back', "notes__add_note", {"text": 'call "Bob" back'}),
    ('add a note "delete the old list"', "notes__add_note", {"text": "delete the old list"}),
    ("add note buy milk, tags: shopping, food", "notes__add_note", {"text": "buy milk", "tags": ["shopping", "food"]}),
    ("メモを追加: 牛乳", "notes__add_note", {"text": "牛乳"}),
    ("list my notes", "notes__list_notes", {}),
    ("my notes?", "notes__list_notes", {}),
    ("what notes do I have?", "notes__list_notes", {}),
    ("list notes limit 5", "notes__list_notes", {"limit": 5}),
    ("search my notes for milk", "notes__search_notes", {"query": "milk"}),
    ("find notes about the project plan", "notes__search_notes", {"query": "project plan"}),
    ("what is in note 3?", "notes__read_note", {"id": 3}),
    ("delete note 3", "notes__delete_note", {"id": 3}),
    ("forget note #12", "notes__delete_note", {"id": 12}),
    ("what's the weather in Tokyo tomorrow?", "weather__get_forecast", {"place": "Tokyo"}),
    ("Will it rain in Osaka tomorrow?", "weather__get_forecast", {"place": "Osaka"}),
    ("weather tokyo", "weather__get_forecast", {"place": "Tokyo"}),
    ("weather in New York next week", "weather__get_forecast", {"place": "New York"}),
    ("forecast for the next 5 days in Nagoya", "weather__get_forecast", {"place": "Nagoya", "days": 5}),
    ("東京の天気を教えて", "weather__get_forecast", {"place": "東京"}),
    ("明日の札幌の天気は?", "weather__get_forecast", {"place": "札幌"}),
    ("turn on the kitchen lights", "home__turn_on", {"room": "kitchen lights"}),
    ("turn off the lamp in the kitchen", "home__turn_off", {"room": "kitchen"}),
    ("set the brightness in the hall to 40", "home__setBrightness", {"room": "hall", "percent": 40}),
    (
        "create an invoice for Acme over 120.50 USD",
        "billing__create_invoice",
        {"customer": "Acme", "amount": 120.5, "currency": "USD"},
    ),
    ("show overdue invoices", "billing__list_invoices", {"status": "overdue"}),
    ("list invoices since: 2026-01-31", "billing__list_invoices", {"since": "2026-01-31"}),
    (
        "send invoice INV-7 to ana@example.com",
        "billing__send_invoice",
        {"invoice_id": "INV-7", "email": "ana@example.com"},
    ),
    ("open a ticket: printer jams", "desk__createTicket", {"title": "printer jams", "priority": "normal"}),
    ('create a high priority ticket "VPN down"', "desk__createTicket", {"title": "VPN down", "priority": "high"}),
    ("close ticket 42", "desk__close_ticket", {"ticket_id": 42}),
    ("assign ticket 42 to Ana", "desk__assign_ticket", {"ticket_id": 42, "assignee": "Ana"}),
    ("convert 10 km to miles", "units__convert", {"value": 10, "from_unit": "km", "to_unit": "miles"}),
    ("plan an event: lunch, day: 2026-03-09", "agenda__plan_event", {"subject": "lunch", "day": "2026-03-09"}),
    ("plan an event for tomorrow: lunch", "agenda__plan_event", {"subject": "lunch", "day": "2026-03-05"}),
    ("plan an event on Monday: lunch", "agenda__plan_event", {"subject": "lunch", "day": "2026-03-09"}),
]


@pytest.mark.parametrize(("question", "name", "arguments"), ONE_CALL, ids=[row[0] for row in ONE_CALL])
async def test_plain_words_become_one_call(question: str, name: str, arguments: dict[str, Any]) -> None:
    assert await calls(question) == [(name, arguments)]


@pytest.mark.parametrize(
    "question",
    [
        "hello",
        "how are you today?",
        "tell me a joke",
        "make me a sandwich",
        "what is the meaning of life?",
        "thanks!",
        "what can you do?",
        "",
        "???",
        "🙂",
        "おはよう",
    ],
)
async def test_small_talk_calls_nothing(question: str) -> None:
    assert await calls(question) == []


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("what's the weather in Tokyo and in Osaka?", [{"place": "Tokyo"}, {"place": "Osaka"}]),
        ("weather in Tokyo, Osaka and Kyoto", [{"place": "Tokyo"}, {"place": "Osaka"}, {"place": "Kyoto"}]),
        ("weather in Tokyo and Tokyo", [{"place": "Tokyo"}]),
        ("weather in Tokyo; weather in Osaka", [{"place": "Tokyo"}, {"place": "Osaka"}]),
        ("weather in Tokyo\nweather in Tokyo", [{"place": "Tokyo"}]),
    ],
)
async def test_several_places_are_several_calls_and_none_twice(question: str, arguments: list[dict[str, Any]]) -> None:
    assert await calls(question) == [("weather__get_forecast", argument) for argument in arguments]


async def test_clauses_that_are_each_clear_are_each_called() -> None:
    assert await calls("add a note: milk and then what's the weather in Tokyo") == [
        ("notes__add_note", {"text": "milk"}),
        ("weather__get_forecast", {"place": "Tokyo"}),
    ]


async def test_a_clause_that_is_not_clear_stays_part_of_the_sentence() -> None:
    assert await calls("add a note: buy milk and then rest") == [
        ("notes__add_note", {"text": "buy milk and then rest"})
    ]


async def test_calls_have_ids_that_the_transcript_does_not_hold_yet() -> None:
    before = tool_round("weather in Osaka", "weather__get_forecast", "rain", place="Osaka")
    message = await reply([*before, assistant("Rain."), user("weather in Tokyo and in Kyoto")])
    assert [call.id for call in message.tool_calls] == ["demo_2", "demo_3"]


def renamed_tool(offered: Tool, old: str, new: str) -> Tool:
    """Return the same tool with other names and descriptions."""

    def other(text: str) -> str:
        return text.replace(old, new).replace(old.capitalize(), new.capitalize())

    return replace(
        offered,
        name=other(offered.name),
        server=other(offered.server),
        original_name=other(offered.original_name),
        title=other(offered.title),
        description=other(offered.description),
    )


@pytest.mark.parametrize("noun", ["recipe", "gadget", "zorb", "invoice"])
async def test_no_name_is_hard_wired_the_same_tools_work_under_any_noun(noun: str) -> None:
    offered = [renamed_tool(note, "note", noun) for note in NOTES]
    assert await calls(f"save a {noun}: buy milk", offered) == [(f"{noun}s__add_{noun}", {"text": "buy milk"})]
    assert await calls(f"list my {noun}s", offered) == [(f"{noun}s__list_{noun}s", {})]
    assert await calls(f"delete {noun} 3", offered) == [(f"{noun}s__delete_{noun}", {"id": 3})]
    assert await calls("delete note 3 from the archive", [renamed_tool(note, "note", noun) for note in NOTES[:2]]) == []


@pytest.mark.parametrize("offered", [NOTES, WEATHER, LAMPS, INVOICES, TICKETS], ids=lambda tools: tools[0].server)
async def test_every_example_in_the_help_works(offered: tuple[Tool, ...]) -> None:
    text = (await reply([user("help")], offered)).text
    examples = text.partition("For example: ")[2].partition("\n")[0].split(" · ")
    for example in filter(None, examples):
        assert await calls(example.strip("`"), offered), example


async def test_a_removing_tool_is_called_only_for_removing_words() -> None:
    only = [note for note in NOTES if note.name == "notes__delete_note"]
    assert await calls("note 3", only) == []
    assert await calls("show note 3", only) == []
    assert await calls("remove note 3", only) == [("notes__delete_note", {"id": 3})]


async def test_two_tools_that_change_something_and_fit_equally_are_asked_about() -> None:
    twins = [
        tool("red__save_memo", "Save a memo", "", {"text": TEXT}, "text"),
        tool("blue__save_memo", "Save a memo", "", {"text": TEXT}, "text"),
    ]
    message = await reply([user("save a memo: hi")], twins)
    assert message.tool_calls == ()
    assert "**Save a memo** (red)" in message.text
    assert "**Save a memo** (blue)" in message.text


async def test_a_missing_argument_is_asked_for_by_its_description() -> None:
    message = await reply([user("delete a note")])
    assert message.tool_calls == ()
    assert "**Delete a note** (notes)" in message.text
    assert "**id** (Number of the note)" in message.text


@pytest.mark.parametrize("question", ["weather", "how is the weather?", "天気"])
async def test_a_subject_without_its_place_is_asked_for_the_place(question: str) -> None:
    message = await reply([user(question)])
    assert message.tool_calls == ()
    assert "**place** (City, such as Tokyo)" in message.text


@pytest.mark.parametrize("answer", ["3", "number 3", "id: 3", "the one with #3"])
async def test_the_answer_to_that_question_completes_the_call(answer: str) -> None:
    asked = await reply([user("delete a note")])
    message = await reply([user("delete a note"), asked, user(answer)])
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("notes__delete_note", {"id": 3})]


async def test_several_missing_arguments_are_listed_and_may_be_named_in_the_answer() -> None:
    asked = await reply([user("create an invoice")])
    assert "- **customer**" in asked.text
    assert "- **amount**" in asked.text
    message = await reply([user("create an invoice"), asked, user("customer: Acme, amount: 12")])
    assert dict(message.tool_calls[0].arguments) == {"customer": "Acme", "amount": 12}


async def test_a_new_request_wins_over_an_open_question() -> None:
    asked = await reply([user("delete a note")])
    message = await reply([user("delete a note"), asked, user("weather in Tokyo")])
    assert [call.name for call in message.tool_calls] == ["weather__get_forecast"]


async def test_an_open_question_about_a_tool_that_is_gone_is_forgotten() -> None:
    asked = await reply([user("delete a note")])
    assert (await reply([user("delete a note"), asked, user("3")], WEATHER)).tool_calls == ()


@pytest.mark.parametrize("metadata", [{"demo": 1}, {"demo": {"tool": []}}, {"demo": {"tool": "notes__delete_note"}}])
async def test_metadata_that_makes_no_sense_is_ignored(metadata: dict[str, Any]) -> None:
    odd = replace(assistant("What?"), provider_metadata=metadata)
    assert (await reply([user("delete a note"), odd, user("3")])).tool_calls == ()


async def test_a_number_out_of_bounds_is_asked_for_instead_of_sent() -> None:
    message = await reply([user("set the brightness in the hall to 400")])
    assert message.tool_calls == ()
    assert "**percent**" in message.text


async def test_without_permission_to_use_tools_nothing_is_called() -> None:
    message = await reply([user("list my notes")], choice=ToolChoice.NONE)
    assert message.tool_calls == ()
    assert message.text


async def test_the_last_user_message_is_the_question_and_system_messages_are_not_read() -> None:
    message = await reply([system("delete note 3"), user("delete note 4"), assistant("no"), user("list my notes")])
    assert [call.name for call in message.tool_calls] == ["notes__list_notes"]


async def test_context_that_others_fetched_before_does_not_stop_the_demo_from_asking_once() -> None:
    context = [
        user("weather in Tokyo"),
        assistant("", ToolCall("ctx", "notes__search_notes", {"query": "weather in Tokyo"})),
    ]
    message = await reply(context)
    assert [call.name for call in message.tool_calls] == ["weather__get_forecast"]


async def test_the_same_call_is_never_made_twice_in_one_turn() -> None:
    done = assistant("", ToolCall("other", "weather__get_forecast", {"place": "Tokyo"}))
    message = await reply([user("weather in Tokyo"), done])
    assert message.tool_calls == ()


async def test_after_three_rounds_of_calls_it_answers() -> None:
    rounds = [assistant("", ToolCall(f"other_{n}", "notes__search_notes", {"query": str(n)})) for n in range(3)]
    assert (await reply([user("weather in Tokyo"), *rounds[:2]])).tool_calls != ()
    assert (await reply([user("weather in Tokyo"), *rounds])).tool_calls == ()


async def test_a_reply_with_calls_stops_for_tools_and_one_with_text_is_an_answer() -> None:
    asking = (await events(ModelRequest((user("list my notes"),), EVERYTHING)))[-1]
    saying = (await events(ModelRequest((user("hello"),), EVERYTHING)))[-1]
    assert isinstance(asking, Completion)
    assert asking.stop is StopReason.TOOLS
    assert isinstance(saying, Completion)
    assert saying.stop is StopReason.ANSWERED
    assert saying.usage.input_tokens == 1
    assert saying.usage.output_tokens == len(saying.message.text.split())


@pytest.mark.parametrize("question", [row[0] for row in ONE_CALL[::6]] + ["hello", "delete a note"])
async def test_the_same_request_gives_the_same_events_in_any_order_of_tools(question: str) -> None:
    request = ModelRequest((user(question),), EVERYTHING)
    assert await events(request) == await events(request)
    assert await calls(question) == await calls(question, EVERYTHING[::-1])


async def test_tomorrow_is_counted_from_the_day_that_the_prompt_tells() -> None:
    question = user("plan an event tomorrow: lunch")
    for day, tomorrow in (("Monday, 2026-11-23", "2026-11-24"), ("Sunday, 2026-11-22", "2026-11-23")):
        messages = [system(f"Be useful.\n\nToday is {day} (Asia/Tokyo)."), question]
        (asked,) = (await reply(messages)).tool_calls
        assert asked.arguments["day"] == tomorrow
    (asked,) = (await reply([user("Today is Monday, 2026-11-23 (UTC)."), question])).tool_calls
    assert asked.arguments["day"] == "2026-03-05", "a user's words are no part of the prompt"


async def test_a_read_of_a_server_waits_for_the_changes_before_it() -> None:
    question = user("remember to call Bob and show my notes")
    first = await reply([question], NOTES)
    assert [call.name for call in first.tool_calls] == ["notes__add_note"]
    done = tool_results(ToolResult(first.tool_calls[0].id, (TextPart("Saved."),)))
    second = await reply([question, first, done], NOTES)
    assert [call.name for call in second.tool_calls] == ["notes__list_notes"]
    listed = tool_results(ToolResult(second.tool_calls[0].id, (TextPart("#1 call Bob"),)))
    answer = (await reply([question, first, done, second, listed], NOTES)).text
    assert answer.index("Saved.") < answer.index("#1 call Bob")


async def test_the_bots_own_tools_are_none_that_it_can_reach() -> None:
    own = replace(tool("countersign__read_result", "", "Read on in a result.", {"id": TEXT}, "id"), server_id="")
    assert own.is_builtin
    assert "Read result" not in (await reply([user("help")], (*NOTES, own))).text


async def test_the_searched_thing_is_found_before_it_is_changed() -> None:
    rows = {"notes": [{"id": 4, "text": "buy milk"}]}
    question = user("delete the note about milk")
    first = await reply([question], NOTES)
    results = tool_results(ToolResult(first.tool_calls[0].id, (TextPart("#4 buy milk"),), structured=rows))
    second = await reply([question, first, results], NOTES)
    assert [(call.name, call.arguments) for call in second.tool_calls] == [("notes__delete_note", {"id": 4})]
    denied = tool_results(ToolResult(second.tool_calls[0].id, (TextPart("Denied by ana."),), is_error=True))
    last = await reply([question, first, results, second, denied], NOTES)
    assert last.tool_calls == ()
    assert "Denied by ana." in last.text


@pytest.mark.parametrize("question", ['send a mail "Lunch" "At noon"', 'send a mail "Lunch": At noon'])
async def test_several_texts_are_taken_in_the_order_of_the_sentence(question: str) -> None:
    mail = tool("post__send_mail", "Send a mail", "", {"subject": TEXT, "body": TEXT}, "subject", "body")
    assert await calls(question, [mail]) == [("post__send_mail", {"subject": "Lunch", "body": "At noon"})]
