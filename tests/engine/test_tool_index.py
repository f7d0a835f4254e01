"""Ranking of tools for a query."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.tool_search import (
    index_of,
    labelled_queries,
    labelled_questions,
    listed_names,
    recall,
    searches,
    shared_words,
    synthetic_tools,
)
from bot.domain.tools import ToolSet
from bot.engine.builtin_tools.tool_index import MOST_HITS, ToolIndex, ToolIndexes
from bot.ports.models import RankTexts
from tests.fakes.parts import tool

PATIENCE = 60.0


def test_nine_of_ten_tools_are_among_the_five_that_are_found() -> None:
    offered = synthetic_tools()
    assert (len(offered.tools), len(offered.guidance)) == (300, 20)
    assert len(labelled_queries()) == len({query.words for query in labelled_queries()}) == 200
    assert shared_words(offered) < 0.6, "people do not use the words of the descriptions"
    assert recall(searches(index_of(offered), labelled_queries()), MOST_HITS) >= 0.90


@pytest.mark.parametrize(
    ("kind", "least"),
    [("plain", 0.95), ("paraphrase", 0.45), ("ja", 0.8), ("de", 0.9), ("es", 0.9), ("fr", 0.9), ("fresh", 0.8)],
)
def test_questions_of_each_kind_find_their_tools(kind: str, least: float) -> None:
    index = index_of(synthetic_tools(more=True))
    questions = [question for question in labelled_questions() if question.kind == kind]
    assert len(questions) >= 16
    assert recall(searches(index, questions), MOST_HITS) >= least


def test_a_model_sees_the_name_of_each_tool_among_375() -> None:
    offered = synthetic_tools(more=True)
    assert listed_names(offered) == {tool.name for tool in offered.tools}


def test_the_same_tools_are_found_in_the_same_order_however_they_are_listed() -> None:
    offered = synthetic_tools()
    shuffled = list(offered.tools)
    random.Random(7).shuffle(shuffled)
    one, other = index_of(offered), index_of(ToolSet(tuple(shuffled), offered.guidance))
    for query in labelled_queries():
        assert one.search(query.words) == other.search(query.words)


@pytest.mark.parametrize(
    "words",
    [
        "create issue",
        "creating issues",
        "createIssue",
        "CREATE-ISSUE",
        "open a ticket",
        "I need to raise a bug, please",
        "jira",
        "assignee",
        "課題を作成",
    ],
)
def test_forms_and_spellings_of_a_word_and_others_that_mean_the_same_find_a_tool(words: str) -> None:
    wanted = tool(
        "jira__createIssue",
        title="New issue",
        description="Adds to the backlog. 課題の作成",
        input_schema={"type": "object", "properties": {"assigneeName": {}}},
    )
    index = ToolIndex([tool("a__sing", description="Sings a song."), wanted, tool("z__dance")], {})
    assert index.search(words)[:1] == (wanted,)


@pytest.mark.parametrize("words", ["", "the of and", "?!", "quixotic"])
def test_words_that_say_nothing_find_nothing(words: str) -> None:
    assert ToolIndex([tool("a__sing", description="Sings the song of the sea.")], {}).search(words) == ()


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"type": "object", "properties": [1]}])
def test_a_tool_with_any_schema_is_found(schema: dict[str, object]) -> None:
    index = ToolIndex([tool("a__sing", input_schema=schema)], {})
    assert [each.name for each in index.search("sing")] == ["a__sing"]


@pytest.mark.parametrize("where", ["original_name", "title", "description", "input_schema"])
def test_of_a_text_without_end_only_the_beginning_is_read(where: str) -> None:
    long = f"sing {'la ' * 1_000} dance"
    text: Any = {"properties": dict.fromkeys([long])} if where == "input_schema" else long
    index = ToolIndex([replace(tool("a__t"), **{where: text}), tool("a__other")], {"a": "", "b": long})
    assert [each.name for each in index.search("sing")] == ["a__t"]
    assert index.search("dance") == ()


def test_no_tools_are_no_trouble() -> None:
    assert ToolIndex([], {}).search("anything at all") == ()


async def test_an_index_is_made_once_for_an_offer_and_anew_for_another() -> None:
    indexes, offered = ToolIndexes(), synthetic_tools()
    first = await indexes.get(offered)
    assert await indexes.get(synthetic_tools()) is first
    fewer = ToolSet(offered.tools[1:], offered.guidance)
    assert await indexes.get(fewer) is not first
    assert await indexes.get(offered) is first
    for n in range(8):
        await indexes.get(ToolSet((tool(f"a__t{n}"),)))
    assert await indexes.get(offered) is not first


class SlowSchema(dict[str, Any]):
    """A definition that is read only after the event `let`."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.let = threading.Event(), threading.Event()

    def get(self, _key: str, _default: object = None) -> None:
        self.read.set()
        assert self.let.wait(PATIENCE)


async def test_an_index_that_is_there_is_given_while_another_is_made() -> None:
    indexes, offered, slow = ToolIndexes(), synthetic_tools(), SlowSchema()
    known = await indexes.get(offered)
    making = asyncio.create_task(indexes.get(ToolSet((tool("a__sing", input_schema=slow),))))
    try:
        assert await asyncio.to_thread(slow.read.wait, PATIENCE)
        async with asyncio.timeout(PATIENCE / 2):
            assert await indexes.get(offered) is known
    finally:
        slow.let.set()
        await making


class SlowToCompare(dict[str, Any]):
    """A definition that is compared only after the event `let`."""

    def __init__(self) -> None:
        super().__init__(type="object")
        self.compared, self.let = threading.Event(), threading.Event()

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        self.compared.set()
        assert self.let.wait(PATIENCE)
        return dict(self) == dict(other) if isinstance(other, dict) else NotImplemented


async def test_no_turn_waits_while_listed_tools_are_compared() -> None:
    indexes, slow = ToolIndexes(), SlowToCompare()
    sings, dances = ToolSet((tool("a__sing", input_schema={"type": "object"}),)), ToolSet((tool("a__dance"),))
    first, other = await indexes.get(sings), await indexes.get(dances)
    again = asyncio.create_task(indexes.get(ToolSet((tool("a__sing", input_schema=slow),))))
    try:
        assert await asyncio.to_thread(slow.compared.wait, PATIENCE)
        async with asyncio.timeout(PATIENCE / 2):
            assert await indexes.get(dances) is other
    finally:
        slow.let.set()
        assert await again is first


@pytest.mark.parametrize(
    "words",
    [
        "Rechnung erstellen",
        "Kundenrechnungen",
        "crear una factura",
        "créer une facture",
        "請求書を作成して",
        "creat invioce",
    ],
)
def test_words_of_other_languages_and_misspelt_ones_find_english_tools(words: str) -> None:
    wanted = tool("billing__create_invoice", description="Creates an invoice for a customer.")
    others = [tool("mail__send", description="Sends a letter."), tool("room__book", description="Reserves a room.")]
    assert ToolIndex([*others, wanted], {}).search(words)[:1] == (wanted,)


@pytest.mark.parametrize("words", ["Rechnungen", "rechnüng", "領収書"])
def test_tools_that_are_described_in_another_language_are_found_by_it(words: str) -> None:
    wanted = tool("a__t1", description="Rechnung schreiben. 領収書の発行")
    assert ToolIndex([tool("a__t2", description="Brief senden. 手紙"), wanted], {}).search(words)[:1] == (wanted,)


def test_words_of_an_argument_s_description_count() -> None:
    wanted = tool("a__t1", input_schema={"properties": {"x": {"description": "The assignee of the record."}}})
    assert ToolIndex([tool("a__t2"), wanted], {}).search("assignee") == (wanted,)


def by_length(texts: Sequence[str]) -> RankTexts:
    """Embed texts so that the longest ones rank first."""
    return lambda _query, most: sorted(range(len(texts)), key=lambda n: -len(texts[n]))[:most]


def test_a_ranking_by_meaning_is_merged_with_that_by_words() -> None:
    both, by_words, by_meaning = (
        tool("a__both", description=f"Sings. {'la ' * 50}"),
        tool("a__sing", description="Sings."),
        tool("a__dance", description="Dances. " * 40),
    )
    tools = [by_words, by_meaning, both, tool("a__sleep")]
    assert ToolIndex(tools, {}).search("sings") == (by_words, both)
    merged = ToolIndex(tools, {}, by_length).search("sings", 3)
    assert sorted(each.name for each in merged) == ["a__both", "a__dance", "a__sing"]
    assert ToolIndex(tools, {}, by_length).search("quixotic", 1) == (by_meaning,)
