"""Markup that a service leaves in a model's text: thoughts, and tool calls that it does not parse."""

from __future__ import annotations

import json
import logging
from itertools import groupby
from typing import Any

import pytest

from bot.app.operations import unparsed_calls
from bot.domain.completions import Completion, ReasoningDelta, StopReason, TextDelta
from bot.domain.health import Fault
from bot.domain.messages import assistant
from bot.domain.metrics import null_sink
from bot.domain.tools import Tool
from bot.llm.models import InstrumentedModel
from bot.llm.openai_chat import Config, create
from bot.llm.text_markup import VisibleText, read_markup, thinks_first, without_thoughts
from tests.fakes.llm import Call, Say
from tests.llm.conversation import EACH_PROVIDER, KEY, OPENAI_CHAT, Provider, asking, complete, events, talking

LOOK = Tool(
    "weather__look",
    "weather",
    "look",
    input_schema={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": ["string", "null"]},
            "more": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
        "required": ["city"],
    },
)
NOW = Tool("clock__now", "clock", "now", input_schema={})
TOOLS = (LOOK, NOW)
OSLO = {"city": "Oslo", "days": 2}
JSON = json.dumps(OSLO)
NAMED = '{"name": "weather__look", "arguments": ' + JSON + "}"

PYTHONIC = 'weather__look(city="Oslo", days=2)'
QUOTED = str({"name": "weather__look", "arguments": OSLO})
ENCLOSED = [
    *(("[", PYTHONIC, "]"), ("", PYTHONIC, ""), ("```tool_code\n", PYTHONIC, "\n```")),
    *(("```tool_code\nprint(default_api.", PYTHONIC, ")\n```"), ("<|python_start|>[", PYTHONIC, "]<|python_end|>")),
    *(
        ("<|tool_call_start|>[", PYTHONIC, "]<|tool_call_end|>"),
        ("<function_calls>\n", PYTHONIC, "\n</function_calls>"),
    ),
    *(("", QUOTED, ""), ("[", QUOTED, "]"), ("<tool_call>\n", QUOTED, "\n</tool_call>")),
    (
        "<start_function_call>call:weather__look",
        "{city:<escape>Oslo<escape>,days:2}",
        "<end_function_call><start_function_response>",
    ),
    ("<|tool_call>call:weather__look", '{city:<|"|>Oslo<|"|>,days:2}', "<tool_call|>"),
    ('<|tools_prefix|>[{"weather__look": ', JSON, "}]<|tools_suffix|>"),
    ("<|tool_call|>[", NAMED, "]"),
    ("<function_call> ", NAMED, ""),
    ("<longcat_tool_call>", NAMED, "</longcat_tool_call>"),
    ("<|action_start|><|plugin|>", NAMED, "<|action_end|>"),
    ("<answer><tool_calls>[", NAMED, "]</tool_calls></answer>"),
    ("function call<|role_sep|>\n", NAMED, ""),
    ('{"thought": "Hm.", "tool_calls": [', NAMED, "]}"),
    ("weather__look\n", JSON, ""),
    ("Action: weather__look\nAction Input: ", JSON, ""),
    ("\u273fFUNCTION\u273f: weather__look\n\u273fARGS\u273f: ", JSON, ""),
    ("[TOOL_CALLS]weather__look[CALL_ID]abc123def[ARGS]", JSON, ""),
    ('Action: ```json\n[{"tool_name": "weather__look", "parameters": ', JSON, "}]\n```"),
    ('<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather__look", "parameters": ', JSON, "}]<|END_ACTION|>"),
    ('{"type": "tool_use", "id": "x", "name": "weather__look", "input": ', JSON, "}"),
    (
        '<\uff5ctool_call_begin\uff5c>function<\uff5ctool_sep\uff5c><steptml:invoke name="weather__look">',
        '<steptml:parameter name="city">Oslo</steptml:parameter><steptml:parameter name="days">2</steptml:parameter>',
        "</steptml:invoke><\uff5ctool_call_end\uff5c>",
    ),
]

THOUGHTS = [
    ("<think>Hm.</think>Rain.", "Rain."),
    ("<think>\nHm.\n</think>\n\nRain.", "Rain."),
    ("<thinking>Hm.</thinking> Rain.", "Rain."),
    ("Hm, so.\n</think>\n\nRain.", "Rain."),
    ("<think>Hm.", ""),
    ("<think></think>Rain.\n<think>Sure?</think>Sun.", "Rain.\nSun."),
    ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Rain.<|return|>", "Rain."),
    ("Write `<think>` and `</think>` around it.", "Write `<think>` and `</think>` around it."),
    ("<thought>Hm.</thought>Rain.", "Rain."),
    ("<Think>Hm.</thinking>Rain.", "Rain."),
    ("[THINK]Hm.[/THINK]Rain.", "Rain."),
    ("\u25c1think\u25b7Hm.\u25c1/think\u25b7Rain.", "Rain."),
    ("<|channel>thought\nHm.<channel|>Rain.", "Rain."),
    ("<think>Hm.</think>Rain.<|im_end|>", "Rain."),
    ("1 < 2 and <b>bold</b>", "1 < 2 and <b>bold</b>"),
    ("<think>a <think>b</think> c</think>Rain.", "Rain."),
    ("<think>User wants the <think> tag.</think>Put `<think>` first.", "Put `<think>` first."),
    ("<think>Should I write <think>x?</think>Rain.", "Rain."),
    ("<think>\n```\n</think>\nRain.", "Rain."),
    ("<think>a</think>\n<think>b</think>\nRain.", "Rain."),
    ("<think> okay so</think>Rain.", "Rain."),
    ("Rain. <think>Sure?</think> Sun.", "Rain. Sun."),
    ("<|begin_of_thought|>Hm.<|end_of_thought|>\n<|begin_of_solution|>Rain.<|end_of_solution|>", "Rain."),
    ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Rain.<|END_RESPONSE|>", "Rain."),
    ("<|inner_prefix|>Hm.<|inner_suffix|>Rain.", "Rain."),
    ("<reasoning>Hm.</reasoning>Rain.", "Rain."),
    ("<seed:think>Hm.</seed:think>Rain.", "Rain."),
    ("<longcat_think>Hm.</longcat_think>Rain.", "Rain."),
    ("Hm.\n[/THINK]Rain.", "Rain."),
    ("Hm.</seed:think>Rain.", "Rain."),
    ("Hm.\n[/THINK][THINK]Sure?[/THINK]Rain.", "Rain."),
    ("Hm.\n</think>\u25c1think\u25b7Sure?", ""),
    ("Rain.<|end|><|endoftext|>", "Rain."),
]
ABOUT_TAGS = [
    "```\n<think>\nHm.\n</think>\nRain.\n```",
    "Like so:\n```xml\n<think>\nHm.\n</think>\n```\nEnd.",
    "Like so:\n\n    <think>\n    Hm.\n    </think>\n\nEnd.",
    "~~~\n<think>a</think>\n~~~",
    "```\nx\n</think>\n```\nThat is it.",
    "```\n<|channel|>analysis<|message|>x<|end|>\n```\nEnd.",
    "Close it with </think>.",
    "Use <think> and </think> around it.",
    "<think> and </think> are tags.",
    "<think> is a tag.",
    "Tags.\n<think> starts a thought\n</think> ends it.",
    "- <think>: opens\n- </think>: closes",
    "1. <think>\n2. </think>",
    "> <think>a</think>",
    'Write "<think>x</think>" there, or (<think>x</think>).',
    "Write it as `Hi. <think>x</think>`.",
    "The token is <|im_end|>",
    "Rain.\n<think>Hm",
]
CALLS: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    (f"<tool_call>\n{NAMED}\n</tool_call>", [("weather__look", OSLO)]),
    (f"<think>Hm.</think><tool_call>{NAMED}</tool_call>", [("weather__look", OSLO)]),
    (
        f'<tool_call>{NAMED}</tool_call>\n<tool_call>{{"name": "clock__now"}}</tool_call>',
        [("weather__look", OSLO), ("clock__now", {})],
    ),
    (
        (
            "<tool_call>\n<function=weather__look>\n<parameter=city>\nOslo\n</parameter>\n"
            "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
        ),
        [("weather__look", OSLO)],
    ),
    (f"<function=weather__look>{JSON}</function>", [("weather__look", OSLO)]),
    (
        (
            '<function_calls><invoke name="weather__look"><parameter name="city">Oslo</parameter>'
            '<parameter name="days">2</parameter></invoke></function_calls>'
        ),
        [("weather__look", OSLO)],
    ),
    (
        (
            "<tool_call>weather__look\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>"
        ),
        [("weather__look", OSLO)],
    ),
    (f"[TOOL_CALLS] [{NAMED}]", [("weather__look", OSLO)]),
    (f"[TOOL_CALLS]weather__look{JSON}", [("weather__look", OSLO)]),
    (
        f"[TOOL_CALLS]weather__look[ARGS]{JSON}[TOOL_CALLS]clock__now[ARGS]{{}}",
        [("weather__look", OSLO), ("clock__now", {})],
    ),
    (NAMED.replace("arguments", "parameters"), [("weather__look", OSLO)]),
    (f"<|python_tag|>{NAMED}<|eom_id|>", [("weather__look", OSLO)]),
    ('{"type": "function", "function": ' + NAMED + "}", [("weather__look", OSLO)]),
    (f"```json\n{NAMED}\n```", [("weather__look", OSLO)]),
    (f"{{{NAMED}}}", [("weather__look", OSLO)]),
    (
        f"<|channel|>commentary to=functions.weather__look <|constrain|>json<|message|>{JSON}<|call|>",
        [("weather__look", OSLO)],
    ),
    (
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather__look"
            f"<|message|>{JSON}"
        ),
        [("weather__look", OSLO)],
    ),
    (f"weather__look<|channel|>commentary<|message|>{JSON}", [("weather__look", OSLO)]),
    (f"commentary to=functions.weather__look json{JSON}", [("weather__look", OSLO)]),
    (f"assistantcommentary to=functions.weather__look json{JSON}", [("weather__look", OSLO)]),
    (f"[TOOL_CALLS] [{NAMED}]</s>", [("weather__look", OSLO)]),
    (f"functools[{NAMED}]", [("weather__look", OSLO)]),
    (f"<TOOLCALL>[{NAMED}]</TOOLCALL>", [("weather__look", OSLO)]),
    (f"<tools>{NAMED}</tools><|endoftext|>", [("weather__look", OSLO)]),
    (f"<|start_header_id|>assistant<|end_header_id|>\n\n{NAMED}<|eot_id|>", [("weather__look", OSLO)]),
    (f"<function=weather__look{JSON}</function>", [("weather__look", OSLO)]),
    (f"```json\n[{NAMED}]\n```", [("weather__look", OSLO)]),
    ('{"tool_calls": [{"type": "function", "function": ' + NAMED + "}]}", [("weather__look", OSLO)]),
    ('{"tool": "weather__look", "arguments": ' + JSON + "}", [("weather__look", OSLO)]),
    (
        (
            '<\uff5cDSML\uff5cfunction_calls><\uff5cDSML\uff5cinvoke name="weather__look">'
            '<\uff5cDSML\uff5cparameter name="city" string="true">Oslo</\uff5cDSML\uff5cparameter>'
            '<\uff5cDSML\uff5cparameter name="days" string="false">2</\uff5cDSML\uff5cparameter>'
            "</\uff5cDSML\uff5cinvoke></\uff5cDSML\uff5cfunction_calls>"
        ),
        [("weather__look", OSLO)],
    ),
    (
        (
            "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>"
            f"weather__look\n```json\n{JSON}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>"
        ),
        [("weather__look", OSLO)],
    ),
    (
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather__look:0<|tool_call_argument_begin|>"
            f"{JSON}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        [("weather__look", OSLO)],
    ),
    *((before + call + after, [("weather__look", OSLO)]) for before, call, after in ENCLOSED),
    (f"[{PYTHONIC}, clock__now()]", [("weather__look", OSLO), ("clock__now", {})]),
    (f"<function_calls>\n{PYTHONIC}\nclock__now()\n</function_calls>", [("weather__look", OSLO), ("clock__now", {})]),
    (
        "[weather__look(city='It\\'s \"x\"\\n \\d', unit=None, more={'x': 'y', }, days=-1, all=[True, 1.5, ])]",
        [
            (
                "weather__look",
                {"city": 'It\'s "x"\n \\d', "unit": None, "more": {"x": "y"}, "days": -1, "all": [True, 1.5]},
            )
        ],
    ),
    (
        'call:weather__look{city:<escape>a "b", {c}\n<escape>,all:[<escape>p<escape>,true]}',
        [("weather__look", {"city": 'a "b", {c}\n', "all": ["p", True]})],
    ),
    (
        "{'name': 'weather__look', 'arguments': {'city': ']}', 'more': {'x': '{'}}}",
        [("weather__look", {"city": "]}", "more": {"x": "{"}})],
    ),
]
NO_CALLS = [
    f"I would write <tool_call>{NAMED}</tool_call>.",
    f"{NAMED} is how it looks.",
    '{"name": "Ana", "arguments": {}}',
    '{"name": "weather__look", "arguments": {}, "price": 3}',
    '<tool_call>{"name": "mail__send", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "weather__look", "arguments": {"city": "a", "city": "b"}}</tool_call>',
    "clock__now",
    '{"city": "Oslo"}',
    "[1, 2]",
    "<tool_call></tool_call>",
    "<tool_call><function=weather__look><parameter=city>Oslo</function></tool_call>",
    "<function=weather__look><parameter=city>a</parameter><parameter=city>b</parameter></function>",
    '[weather__look("Oslo")]',
    "weather__look(city=clock__now())",
    "[weather__look(city=open('x').read())]",
    "[weather__look(city='a', city='b')]",
    "weather__look(city='a' 'b')",
    "[weather__look(city=f'{x}')]",
    "[weather__look(city=" + "[" * 90 + "]" * 90 + "y)]",
    "{'name': 'weather__look', 'arguments': {'city': 'a', 'city': 'b'}}",
    '{"name": "weather__look", "arguments": {"city": "Oslo"}, "args": {"city": "Rome"}}',
    '{"clock__now": {"description": "The time."}}',
    "[mail__send(to='x')]",
    "x = clock__now()",
    "clock__now() gives the time.",
    "Use [clock__now()].",
    "```python\nclock__now()\n```",
    "[note](https://example.org)",
    "Function calls are easy.",
    *ABOUT_TAGS,
]


@pytest.mark.parametrize(("text", "answer"), THOUGHTS)
@pytest.mark.parametrize("pieces", [1, 7, 999])
async def test_thoughts_in_the_text_are_neither_shown_nor_kept(text: str, answer: str, pieces: int) -> None:
    async with talking(OPENAI_CHAT, *[Say(text, pieces=pieces)] * 2) as (model, _):
        for turn in range(2):
            *deltas, last = await events(model)
            shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
            assert isinstance(last, Completion)
            assert last.message.text == answer
            if turn or not text.startswith("Hm"):  # that it thinks first is known from the first reply
                assert shown == answer
    assert without_thoughts(answer) == answer


async def test_the_first_thought_of_a_reasoning_model_is_not_shown_and_its_later_answers_come_at_once() -> None:
    reasoning = Provider("openai", "OPENAI", lambda address: create(Config("deepseek-r1:8b", KEY, base_url=address)))
    answers = Say("Hm.\n</think>Rain.", pieces=9), Say("Sun.", pieces=4), Say("Snow.", pieces=4)
    async with talking(reasoning, *answers) as (model, _):
        for answer, most in (("Rain.", 9), ("Sun.", 1), ("Snow.", 4)):
            shown = [delta.text for delta in await events(model) if isinstance(delta, TextDelta)]
            assert ("".join(shown), len(shown) <= most) == (answer, True)
    async with talking(reasoning, Say("Rain.", thinking="Hm.", pieces=5)) as (model, _):
        kinds = [kind for kind, _ in groupby(map(type, await events(model)))]
        assert kinds[:2] == [ReasoningDelta, TextDelta]


@pytest.mark.parametrize(("text", "calls"), CALLS)
@pytest.mark.parametrize("pieces", [1, 999])
async def test_a_call_that_comes_as_text_is_a_call_and_never_shown(
    text: str, calls: list[tuple[str, dict[str, Any]]], pieces: int
) -> None:
    async with talking(OPENAI_CHAT, Say(text, pieces=pieces)) as (model, _):
        *deltas, last = await events(model, asking(tools=TOOLS))
    assert isinstance(last, Completion)
    assert deltas == []
    assert [(call.name, call.arguments) for call in last.message.tool_calls] == calls
    assert (last.message.text, last.stop) == ("", StopReason.TOOLS)


@pytest.mark.parametrize("text", [text for text, _ in (*THOUGHTS, *CALLS)] + NO_CALLS)
def test_wherever_a_text_is_cut_the_same_is_shown(text: str) -> None:
    whole = read_markup(Completion(assistant(text), StopReason.ANSWERED), TOOLS)
    first = thinks_first(Completion(assistant(text), StopReason.ANSWERED))
    cuts = [[text[:n], text[n:]] for n in range(len(text) + 1)]
    for pieces in (list(text), *cuts):
        visible = VisibleText(TOOLS, thinks_first=first)
        shown = [delta.text for piece in pieces for delta in visible.feed(piece)]
        shown += [delta.text for delta in visible.show(whole.message.text)]
        assert "".join(shown) == whole.message.text


@pytest.mark.parametrize("text", NO_CALLS)
@pytest.mark.parametrize("pieces", [1, 999])
async def test_a_text_that_is_more_or_other_than_calls_of_offered_tools_is_an_answer(text: str, pieces: int) -> None:
    async with talking(OPENAI_CHAT, Say(text, pieces=pieces)) as (model, _):
        *deltas, last = await events(model, asking(tools=TOOLS))
    assert isinstance(last, Completion)
    assert (last.message.text, last.stop) == (text, StopReason.ANSWERED)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text


async def test_without_tools_a_call_is_a_text() -> None:
    async with talking(OPENAI_CHAT, Say(NAMED)) as (model, _):
        assert (await complete(model)).message.text == NAMED


async def test_the_operator_is_told_once_how_to_have_calls_parsed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    parsed, unparsed = Say(calls=(Call("clock__now"),)), set[str]()
    async with talking(OPENAI_CHAT, Say(NAMED), Say(NAMED), Say("Rain."), parsed) as (model, _):
        named = InstrumentedModel(model, "local:small", null_sink, unparsed=unparsed)
        for _ in range(3):
            await complete(named, asking(tools=TOOLS))
        (fault,) = await unparsed_calls(unparsed)()
        await complete(named, asking(tools=TOOLS))
        assert list(await unparsed_calls(unparsed)()) == []
    assert isinstance(fault, Fault)
    assert fault.title == "Model local:small writes its tool calls as text"
    assert fault.fix.count("--tool-call-parser") == caplog.text.count("--tool-call-parser") == 2
    assert len(caplog.records) == 1


@EACH_PROVIDER
@pytest.mark.parametrize("name", ["weather__look<|channel|>commentary", "functions.weather__look", "weather__look:0"])
async def test_remains_of_markup_in_a_name_are_cut_off(provider: Provider, name: str) -> None:
    async with talking(provider, Say(calls=(Call(name, OSLO),))) as (model, _):
        (call,) = (await complete(model, asking(tools=TOOLS))).message.tool_calls
    assert call.name == "weather__look"


@EACH_PROVIDER
async def test_null_for_an_optional_argument_is_left_out_where_it_is_not_allowed(provider: Provider) -> None:
    given = {"city": None, "days": None, "unit": None, "more": {"x": None}, "other": None}
    async with talking(provider, Say(calls=(Call("weather__look", given),))) as (model, _):
        (call,) = (await complete(model, asking(tools=TOOLS))).message.tool_calls
    assert call.arguments == {"city": None, "unit": None, "more": {}, "other": None}
