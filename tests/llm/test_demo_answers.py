"""Answers of the demo model: it names its limits, and presents tool results readably."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from time import process_time
from typing import Any

import pytest

from bot.domain.completions import ModelRequest, ToolChoice
from bot.domain.messages import (
    ImagePart,
    Message,
    MessageRole,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
    tool_results,
    user,
)
from bot.llm.demo import Config, create, passage
from tests.llm.demo_offers import EVERYTHING, NOTES, TEXT, WEATHER, events, reply, tool, tool_round

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "BOT_MODEL=openai:NAME", ".env")


@pytest.mark.parametrize(
    "greeting", ["hi", "Hello!", "hey there", "こんにちは", "what can you do?", "help", "tell me a joke"]
)
async def test_help_names_the_demo_the_tools_of_servers_and_the_key_to_set(greeting: str) -> None:
    text = (await reply([user(greeting)])).text
    assert "demo model" in text
    assert all(key in text for key in KEYS)
    lines = text.splitlines()
    assert "- **notes**: Add a note · List notes · Search notes · Read a note · Delete a note" in lines
    assert "- **desk**: Create ticket · Close ticket · Assign ticket" in lines


@pytest.mark.parametrize("question", ["who are you?", "are you ChatGPT?", "are you human?", "which model is this?"])
async def test_asked_about_itself_it_says_that_it_is_not_an_ai(question: str) -> None:
    assert "I am not an AI" in (await reply([user(question)])).text


async def test_thanks_are_answered_kindly() -> None:
    assert (await reply([user("thanks a lot!")])).text.startswith("You are welcome.")


async def test_without_tools_it_says_that_there_are_none() -> None:
    text = (await reply([user("list my notes")], tools=())).text
    assert "No tools are offered" in text
    assert "OPENAI_API_KEY" in text


async def test_help_stays_short_with_many_servers_and_tools() -> None:
    many = [tool(f"s{n}__do_{m}", f"Do {m}", "x" * 9999, {}) for n in range(40) for m in range(20)]
    began = process_time()
    text = (await reply([user("hello")], many)).text
    assert process_time() - began < 5  # the model runs in the event loop
    assert "and 12 more" in text
    assert "… and 28 more servers" in text
    assert len(text) < 3000


async def test_titles_cannot_break_the_line_they_stand_in() -> None:
    odd = tool("odd__x", "**Bold**\n# Heading `code`" + "y" * 500, "", {})
    (line,) = [line for line in (await reply([user("hello")], [odd])).text.splitlines() if line.startswith("- ")]
    assert line.startswith("- **odd**: Bold Heading code y")
    assert len(line) < 100


async def test_a_readable_result_alone_is_shown_as_it_is_and_the_first_answer_has_a_note_about_the_demo() -> None:
    turn = tool_round("weather in Tokyo", "weather__get_forecast", "Tokyo: sunny, 21 degrees.", place="Tokyo")
    first = (await reply(turn)).text
    assert first.startswith("Tokyo: sunny, 21 degrees.\n\n*This was the demo model")
    assert all(key in first for key in KEYS)
    later = (await reply([user("hi"), assistant("Hello!"), *turn])).text
    assert later == "Tokyo: sunny, 21 degrees."


@pytest.mark.parametrize(
    ("arguments", "heading"),
    [
        ({"place": "Osaka", "days": 4}, "**Weather forecast** (weather) for Osaka, days 4:"),
        ({"place": "Osaka"}, "**Weather forecast** (weather) for Osaka:"),
        ({"days": 4}, "**Weather forecast** (weather) for days 4:"),
        ({"place": "x" * 80}, "**Weather forecast** (weather) for " + "x" * 59 + "…:"),
        ({}, "**Weather forecast** (weather):"),
    ],
)
async def test_a_result_of_a_word_or_data_has_a_heading_with_its_subject(
    arguments: dict[str, Any], heading: str
) -> None:
    for text in ("Sunny.", '[{"day": "Mon", "rain": 1}, {"day": "Tue", "rain": 2}]'):
        turn = tool_round("weather in Osaka", "weather__get_forecast", text, **arguments)
        assert (await reply([user("hi"), assistant("Hello!"), *turn])).text.startswith(f"{heading}\n\n")


@pytest.mark.parametrize(
    "reason",
    [
        "Denied by ana: not this one.",
        "Nobody decided in time, so the call was not made.",
        "It is unknown whether this has happened. Check before trying again.",
        "There is no note 9. Did you mean 8?",
    ],
)
async def test_a_call_without_success_is_explained_and_not_tried_again(reason: str) -> None:
    message = await reply(tool_round("delete note 9", "notes__delete_note", reason, error=True, id=9))
    assert message.tool_calls == ()
    assert message.text.startswith(f"**Delete a note** (notes) brought no result: {reason}")


async def test_an_error_without_a_reason_is_still_an_error() -> None:
    text = (await reply(tool_round("delete note 9", "notes__delete_note", error=True, id=9))).text
    assert "brought no result: it did not say why." in text


async def test_an_empty_result_is_said_to_be_empty() -> None:
    assert "it returned nothing to show" in (await reply(tool_round("delete note 9", "notes__delete_note", id=9))).text


async def test_a_tool_that_is_gone_is_named_in_plain_words() -> None:
    assert "**Old thing get it**" in (await reply(tool_round("x", "old_thing__get_it", "y"))).text


async def test_results_come_in_the_order_of_the_calls_and_a_missing_one_is_not_hidden() -> None:
    two = assistant(
        "",
        ToolCall("demo_1", "weather__get_forecast", {"place": "Tokyo"}),
        ToolCall("demo_2", "weather__get_forecast", {"place": "Osaka"}),
        ToolCall("demo_3", "weather__get_forecast", {"place": "Kyoto"}),
    )
    results = tool_results(ToolResult("demo_2", (TextPart("rain"),)), ToolResult("demo_1", (TextPart("sun"),)))
    text = (await reply([user("weather in Tokyo, Osaka and Kyoto"), two, results])).text
    assert text.index("sun") < text.index("rain") < text.index("has given no result")


async def test_with_tools_forbidden_the_answer_is_written_from_the_transcript() -> None:
    turn = tool_round("weather in Tokyo", "weather__get_forecast", "Sunny.", place="Tokyo")
    message = await reply(turn, tools=(), choice=ToolChoice.NONE)
    assert "Sunny." in message.text
    assert message.tool_calls == ()


DATA: list[tuple[Any, str]] = [
    ([{"id": 1, "text": "milk"}, {"id": 2, "text": "a|b"}], "- **id**: 1, **text**: milk\n- **id**: 2, **text**: a|b"),
    ({"result": [{"id": 1, "text": "milk"}]}, "- **id**: 1, **text**: milk"),
    ({"result": []}, "(an empty list)"),
    ({"result": 7}, "7"),
    ({"city_name": "Tokyo", "dry": True, "wind": None}, "- **city name**: Tokyo\n- **dry**: yes\n- **wind**: -"),
    ({"a": {"b": [1]}, "c": 3}, '```json\n{\n  "a": {\n    "b": [\n      1\n    ]\n  },\n  "c": 3\n}\n```'),
    (list(range(14)), "- 9\n- … and 4 more"),
]


@pytest.mark.parametrize(("data", "shown"), DATA)
async def test_data_becomes_a_list_and_nested_data_json(data: Any, shown: str) -> None:
    text = (await reply(tool_round("x", "notes__list_notes", structured=data))).text
    assert shown in text


async def test_json_in_a_text_is_data_too() -> None:
    text = (await reply(tool_round("x", "notes__list_notes", '{"count": 2, "newest": "milk"}'))).text
    assert "- **count**: 2\n- **newest**: milk" in text


async def test_a_readable_text_wins_over_the_same_as_data() -> None:
    text = (await reply(tool_round("x", "notes__list_notes", "Two notes.", structured={"count": 2, "a": 1}))).text
    assert "Two notes." in text
    assert "count" not in text


async def test_data_that_stands_beside_a_readable_text_for_real_models_is_not_shown_to_people() -> None:
    parts = (TextPart("Two notes."), TextPart('{"count": 2}'))
    result = tool_results(ToolResult("demo_1", parts, structured={"count": 2}))
    call = assistant("", ToolCall("demo_1", "notes__list_notes", {}))
    text = (await reply([user("show my notes"), call, result])).text
    assert "Two notes." in text
    assert "count" not in text


async def test_a_long_result_is_shortened_and_its_code_fence_closed() -> None:
    text = (await reply(tool_round("x", "notes__list_notes", "```\n" + "word " * 5000))).text
    assert "… (shortened)" in text
    assert text.count("```") == 2
    assert len(text) < 2500


async def test_a_long_list_is_cut_at_the_end_of_a_line_and_says_how_many_follow() -> None:
    lines = [f"Guide {n} [guide-{n}.md] (7 sections, 2026-11-26)" for n in range(50)]
    text = (await reply(tool_round("x", "notes__list_notes", "\n".join(lines)))).text
    shown = [line for line in text.splitlines() if line.startswith("Guide")]
    assert shown == lines[: len(shown)]
    assert len(shown) > 30
    assert f"\n\n… {50 - len(shown)} more lines" in text
    assert lines[-1] in (await reply(tool_round("x", "notes__list_notes", "\n".join(lines[20:])))).text


async def test_pictures_are_mentioned() -> None:
    result = tool_results(ToolResult("demo_1", (ImagePart(b"12345", "image/png"),)))
    call = assistant("", ToolCall("demo_1", "weather__get_forecast", {"place": "Tokyo"}))
    assert "(image, image/png, 5 bytes)" in (await reply([user("weather in Tokyo"), call, result])).text


async def test_more_than_the_demo_reads_is_answered_without_tools() -> None:
    message = await reply([user("list my notes " + "x" * 30_000)])
    assert message.tool_calls == ()


async def test_an_empty_transcript_is_answered_like_a_greeting() -> None:
    assert "demo model" in (await reply([])).text


async def test_the_text_comes_in_small_pieces_with_room_for_others_between_them() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    pieces = await events(ModelRequest((user("hello"),), EVERYTHING))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turns >= len(pieces) - 1 > 20


def test_it_can_use_tools_and_see_no_images() -> None:
    capabilities = create(Config()).capabilities
    assert capabilities.tools
    assert not capabilities.images


async def test_it_works_with_its_own_calendar_and_closes_without_complaint() -> None:
    model = create(Config())
    last = [event async for event in model.stream(ModelRequest((user("weather in Tokyo tomorrow"),), WEATHER))][-1]
    assert isinstance(getattr(last, "message", None), Message)
    await model.close()


def test_importing_it_loads_nothing_but_the_standard_library_and_that_of_the_catalogues() -> None:
    code = (
        "import sys; before = set(sys.modules); import bot.llm.demo\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(name for name in new - set(sys.stdlib_module_names) if not name.startswith('_sysconfigdata')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['babel', 'bot']"


async def test_images_from_the_person_are_no_obstacle() -> None:
    question = Message(MessageRole.USER, (ImagePart(b"x", "image/png"), TextPart("list my notes")))
    assert [call.name for call in (await reply([question], NOTES)).tool_calls] == ["notes__list_notes"]


async def test_a_tool_without_a_schema_that_makes_sense_can_still_be_called() -> None:
    odd = tool("odd__ping", "Ping", "", {"a": TEXT})
    schema: Any = {"type": "object", "properties": 5, "required": "a"}
    offered = type(odd)(odd.name, odd.server, odd.original_name, odd.title, odd.description, schema)
    assert [call.arguments for call in (await reply([user("ping")], [offered])).tool_calls] == [{}]


async def passage_of(question: str, text: str) -> str:
    rows = [{"source": "docs/guide.md", "headings": ["Guide", "Volcanoes"], "text": text}]
    return passage(question, ToolResult("demo_1", (), structured={"result": rows}))


async def test_a_passage_has_a_paragraph_and_an_item_on_one_line_and_keeps_code_and_tables() -> None:
    text = (
        "Volcanoes are\nmountains.\n![A picture of one](pictures/one.png)\n\n- hot\n  inside\n- high\n\n"
        "```sh\necho a\necho b\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n火山は\n山です。"
    )
    shown = await passage_of("what are volcanoes?", text)
    assert shown.split("\n\n", 1)[1] == (
        "Volcanoes are mountains.\n\n- hot inside\n- high\n\n```sh\necho a\necho b\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n火山は山です。"
    )


async def test_words_of_a_table_header_answer_nothing() -> None:
    table = "| variable | default | meaning |\n|---|---|---|\n| `AUTOVACUUM` | on | lifetime of rows |"
    assert await passage_of("what is the meaning of life?", table) == ""


async def test_a_word_that_only_begins_like_one_of_the_question_answers_nothing() -> None:
    assert await passage_of("what is the meaning of life?", "Autovacuum runs meanwhile; lifeboats wait.") == ""
