"""The names under which tools are offered."""

from __future__ import annotations

import random
import re

from hypothesis import example, given
from hypothesis import strategies as st

from bot.domain.servers import HttpTransport, ServerConfig
from bot.domain.tools import Tool, ToolSet
from bot.engine.builtin_tools.search_tools import CALL_TOOL, SEARCH_TOOLS
from bot.engine.prompt.messages import READ_RESULT
from bot.mcp.review import apply_definition, offered_name

SERVERS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
NOWHERE = HttpTransport("https://example.com/mcp")
TRICKY = st.text("ab_ .", max_size=6)


def test_a_plain_pair_is_joined() -> None:
    assert offered_name("weather", "get_forecast") == "weather__get_forecast"


def test_other_characters_become_underscores_and_the_name_is_marked() -> None:
    assert re.fullmatch(r"s__get_weather_now_[0-9a-f]{8}", offered_name("s", "get.weather now"))


def test_long_names_are_cut_and_told_apart() -> None:
    first, second = offered_name("s", "x" * 100 + "1"), offered_name("s", "x" * 100 + "2")
    assert len(first) == len(second) == 64
    assert first != second


def test_the_border_between_server_and_tool_cannot_be_moved() -> None:
    assert offered_name("a__b", "c") != offered_name("a", "b__c")
    assert offered_name("a_", "b") != offered_name("a", "_b")


def test_a_name_that_imitates_a_marked_one_is_marked_itself() -> None:
    marked = offered_name("s", "a b")
    assert offered_name("s", marked.removeprefix("s__")) != marked


@given(SERVERS | st.just("countersign"), st.text(min_size=1, max_size=100))
@example("countersign", "call_tool")
@example("countersign", "search_tools")
@example("countersign", "read_result")
@example("countersign_", "_read_result")
def test_no_tool_of_a_server_is_called_like_one_of_the_bots_own(server: str, tool: str) -> None:
    assert offered_name(server, tool) not in (SEARCH_TOOLS, CALL_TOOL, READ_RESULT)


@given(SERVERS, st.text(min_size=1, max_size=100))
def test_every_name_is_one_that_models_take(server: str, tool: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", offered_name(server, tool))


@given(st.lists(st.tuples(st.text("ab_", min_size=1, max_size=5), TRICKY), unique=True, max_size=60))
def test_different_pairs_have_different_names(pairs: list[tuple[str, str]]) -> None:
    assert len({offered_name(*pair) for pair in pairs}) == len(pairs)


PAIRS = st.lists(st.tuples(SERVERS, st.text(min_size=1, max_size=80)), unique=True, min_size=1, max_size=20)


def make_offer(pairs: list[tuple[str, str]]) -> ToolSet:
    """Return an offer of these tools."""
    configs = {server: ServerConfig(server, NOWHERE, id=f"id of {server}") for server, _ in pairs}
    return ToolSet(tuple(apply_definition(Tool("", "", tool), configs[server]) for server, tool in pairs))


@given(PAIRS)
def test_a_name_leads_back_to_the_server_by_its_id_and_to_the_tool_by_its_own_name(
    pairs: list[tuple[str, str]],
) -> None:
    found = [make_offer(pairs).find(offered_name(*pair)) for pair in pairs]
    assert [(each.server_id, each.original_name) for each in found if each] == [
        (f"id of {server}", tool) for server, tool in pairs
    ]


@given(PAIRS, st.randoms(use_true_random=False))
def test_names_stay_when_other_servers_come_and_go(pairs: list[tuple[str, str]], chance: random.Random) -> None:
    names = {(tool.server, tool.original_name): tool.name for tool in make_offer(pairs).tools}
    some = chance.sample(pairs, chance.randint(1, len(pairs)))
    assert all(names[tool.server, tool.original_name] == tool.name for tool in make_offer(some).tools)


def test_names_are_the_same_in_every_release() -> None:
    """Operators' policies and stored transcripts contain the names."""
    assert offered_name("files", "read") == "files__read"
    assert offered_name("files", "read file") == "files__read_file_e097ed47"
    assert offered_name("a__b", "c") == "a__b__c_42fd3caa"
