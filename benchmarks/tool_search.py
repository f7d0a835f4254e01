"""Quality and savings of the search for tools that are not given to the model.

    .venv/bin/python -m benchmarks.tool_search

Uses 300 tools of 20 servers (tool_search_tools.txt) and 200 queries with the expected tool
(tool_search_queries.txt), phrased without knowledge of the descriptions. Prints the share of expected tools among
the first five results, tokens by the bot's own estimate, and times. No network is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bot.domain.tokenizer import terms
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.engine.builtin_tools.search_tools import format_search_result
from bot.engine.builtin_tools.tool_index import ToolIndex
from bot.engine.builtin_tools.toolbox import select_builtin_tools
from bot.engine.prompt.tool_selection import within_limit
from bot.engine.usage import estimate_text, estimate_tools

_FOLDER = Path(__file__).parent
_TOOL = re.compile(r"(\w+)\((.*?)\): (.*)")
_SERVER = re.compile(r"= (\w+) \| (.*)")


@dataclass(frozen=True, slots=True)
class Labelled:
    """Query and the name of the expected tool."""

    words: str
    meant: str


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search: tool names, best first, and seconds."""

    labelled: Labelled
    tools: tuple[Tool, ...]
    seconds: float

    def within(self, most: int) -> bool:
        """Return True if the expected tool is among the first `most`."""
        return self.labelled.meant in [tool.name for tool in self.tools[:most]]


def synthetic_tools() -> ToolSet:
    """Return 300 tools of 20 servers."""
    tools: list[Tool] = []
    guidance: list[ServerGuidance] = []
    for line in (_FOLDER / "tool_search_tools.txt").read_text(encoding="utf-8").splitlines():
        if server := _SERVER.fullmatch(line):
            guidance.append(ServerGuidance(server[1], description=server[2]))
        elif tool := _TOOL.fullmatch(line):
            tools.append(_tool(guidance[-1].server, *tool.groups()))
    return ToolSet(tuple(tools), tuple(guidance))


def labelled_queries() -> Sequence[Labelled]:
    """Return 200 queries with the expected tool."""
    lines = (_FOLDER / "tool_search_queries.txt").read_text(encoding="utf-8").splitlines()
    return [Labelled(words, meant) for meant, words in (line.split(": ", 1) for line in lines)]


def index_of(offered: ToolSet) -> ToolIndex:
    """Return the index of these tools."""
    return ToolIndex(offered.tools, {guide.server: guide.description for guide in offered.guidance})


def searches(offered: ToolSet) -> Sequence[Found]:
    """Run every query once."""
    index = index_of(offered)
    found = []
    for query in labelled_queries():
        began = time.perf_counter()
        tools = index.search(query.words)
        found.append(Found(query, tools, time.perf_counter() - began))
    return found


def recall(found: Sequence[Found], most: int) -> float:
    """Return the share of queries whose tool is among the first `most`."""
    return mean(each.within(most) for each in found)


def shared_words(offered: ToolSet) -> float:
    """Return the share of the queries' words that occur in name, arguments or description of the expected tool."""
    tools = {tool.name: tool for tool in offered.tools}
    shares = []
    for query in labelled_queries():
        tool, asked = tools[query.meant], set(terms(query.words))
        said = set(terms(f"{tool.original_name} {tool.description} {' '.join(tool.input_schema['properties'])}"))
        shares.append(len(asked & said) / len(asked))
    return mean(shares)


def _tool(server: str, name: str, arguments: str, description: str) -> Tool:
    properties = {
        each.strip(): {"type": "string", "description": f"The {each.strip().replace('_', ' ')}."}
        for each in arguments.split(",")
        if each.strip()
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return Tool(f"{server}__{name}", server, name, description=description, input_schema=schema)


def main() -> None:
    """Print the table."""
    offered = synthetic_tools()
    began = time.perf_counter()
    index_of(offered)
    made = time.perf_counter() - began
    found = searches(offered)
    answers = [estimate_text("\n".join(format_search_result(each.labelled.words, each.tools))) for each in found]
    print(f"{len(offered.tools)} tools of {len(offered.guidance)} servers, {len(found)} questions")
    print(f"words of a question that its tool has, too   {shared_words(offered):8.0%}")
    for most in (1, 3, 5):
        print(f"recall@{most}                                     {recall(found, most):8.1%}")
    print(f"tokens of all definitions                    {estimate_tools(offered.tools):8,.0f}")
    print(f"tokens of the 128 that services take         {estimate_tools(within_limit(offered).tools):8,.0f}")
    builtin_tools = select_builtin_tools(offered.tools, searches=True)
    print(f"tokens of the bot's own, with search         {estimate_tools(builtin_tools):8,.0f}")
    print(f"tokens that a search adds, on average        {mean(answers):8,.0f}")
    print(f"milliseconds to make the index               {made * 1000:8.1f}")
    print(f"milliseconds a search, on average            {mean(each.seconds for each in found) * 1000:8.2f}")


if __name__ == "__main__":
    main()
