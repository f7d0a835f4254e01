"""Quality and cost of the search for tools that are not given to the model.

    .venv/bin/python -m benchmarks.tool_search [--embeddings FOLDER]

Uses 375 tools of 26 servers (tool_search_tools.txt, tool_search_more_tools.txt) and two sets of questions with the
expected tools: tool_search_queries.txt, 200 plain ones to the first file, and tool_search_questions.txt, 206 to both.
Every third of the first 156 of these is held out: its results were not read while words were chosen. The questions
after them, called fresh, were written later. Prints the share of questions whose tool is among the first results,
tokens by the bot's own estimate, and times. No network is used. FOLDER is a model2vec model.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bot.domain.completions import Capabilities
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.domain.vocabulary import terms
from bot.engine.builtin_tools.search_tools import format_search_result
from bot.engine.builtin_tools.tool_index import ToolIndex
from bot.engine.prompt.builder import ToolSelection, select_builtin_tools, within_limit
from bot.engine.usage import estimate_text, estimate_tools
from bot.llm.static_embeddings import load_embedder
from bot.ports.models import EmbedTexts

_FOLDER = Path(__file__).parent
_TOOL = re.compile(r"(\w+)\((.*?)\): (.*)")
_SERVER = re.compile(r"= (\w+) \| (.*)")
_TUNED = 156
"""Questions before the fresh ones, of which every third is held out."""
_MANY = 5_000


@dataclass(frozen=True, slots=True)
class Labelled:
    """Query and the names of the expected tools, any of which is right."""

    words: str
    meant: tuple[str, ...]
    kind: str = "plain"
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search: tool names, best first, and seconds."""

    labelled: Labelled
    tools: tuple[Tool, ...]
    seconds: float

    def within(self, most: int) -> bool:
        """Return True if an expected tool is among the first `most`."""
        return any(tool.name in self.labelled.meant for tool in self.tools[:most])


def synthetic_tools(*, more: bool = False) -> ToolSet:
    """Return 300 tools of 20 servers; with `more`, 375 of 26."""
    tools: list[Tool] = []
    guidance: list[ServerGuidance] = []
    for name in ("tool_search_tools.txt", *(("tool_search_more_tools.txt",) if more else ())):
        for line in (_FOLDER / name).read_text(encoding="utf-8").splitlines():
            if server := _SERVER.fullmatch(line):
                guidance.append(ServerGuidance(server[1], description=server[2]))
            elif tool := _TOOL.fullmatch(line):
                tools.append(_tool(guidance[-1].server, *tool.groups()))
    return ToolSet(tuple(tools), tuple(guidance))


def labelled_queries() -> Sequence[Labelled]:
    """Return 200 queries in plain English with the expected tool, for 300 tools."""
    lines = (_FOLDER / "tool_search_queries.txt").read_text(encoding="utf-8").splitlines()
    return [Labelled(words, (meant,)) for meant, words in (line.split(": ", 1) for line in lines)]


def labelled_questions() -> Sequence[Labelled]:
    """Return 206 questions of several kinds and languages, for 375 tools."""
    lines = (_FOLDER / "tool_search_questions.txt").read_text(encoding="utf-8").splitlines()
    return [
        Labelled(words, tuple(meant.split("/")), kind, held_out=n < _TUNED and n % 3 == 2)
        for n, (kind, meant, words) in enumerate(line.split(" | ", 2) for line in lines)
    ]


def index_of(offered: ToolSet, embed: EmbedTexts | None = None) -> ToolIndex:
    """Return the index of these tools."""
    about = {guide.server: guide.description for guide in offered.guidance}
    return ToolIndex(offered.tools, about, embed)


def searches(index: ToolIndex, queries: Sequence[Labelled], most: int = 8) -> Sequence[Found]:
    """Run every query once."""
    results = []
    for query in queries:
        began = time.perf_counter()
        tools = index.search(query.words, most)
        results.append(Found(query, tools, time.perf_counter() - began))
    return results


def recall(results: Sequence[Found], most: int) -> float:
    """Return the share of queries whose tool is among the first `most`."""
    return mean(result.within(most) for result in results)


def shared_words(offered: ToolSet) -> float:
    """Return the share of the queries' words that occur in name, arguments or description of the expected tool."""
    tools = {tool.name: tool for tool in offered.tools}
    shares = []
    for query in labelled_queries():
        tool, asked = tools[query.meant[0]], set(terms(query.words))
        words = set(terms(f"{tool.original_name} {tool.description} {' '.join(tool.input_schema['properties'])}"))
        shares.append(len(asked & words) / len(asked))
    return mean(shares)


def listed_names(offered: ToolSet, window: int = 128_000) -> frozenset[str]:
    """Return the full names of the tools in the list that a model of this window sees."""
    search, *_ = ToolSelection().select(offered, "model", Capabilities(context_tokens=window)).tools
    _, _, lines = search.input_schema["properties"]["names"]["description"].partition("\n")
    servers = (line.split(": ", 1) for line in lines.splitlines())
    return frozenset(f"{server}__{name}" for server, names in servers for name in names.split(", "))


def _tool(server: str, name: str, arguments: str, description: str) -> Tool:
    properties = {
        argument.strip(): {"type": "string", "description": f"The {argument.strip().replace('_', ' ')}."}
        for argument in arguments.split(",")
        if argument.strip()
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return Tool(f"{server}__{name}", server, name, description=description, input_schema=schema)


def _many(offered: ToolSet) -> ToolSet:
    """Return thousands of tools: copies under the names of other servers."""
    copies = range(-(-_MANY // len(offered.tools)))
    tools = [
        Tool(f"{tool.server}{n}__{tool.original_name}", f"{tool.server}{n}", tool.original_name, "", tool.description)
        for n in copies
        for tool in offered.tools
    ]
    return ToolSet(tuple(tools[:_MANY]))


def _print_plain() -> None:
    offered = synthetic_tools()
    results = searches(index_of(offered), labelled_queries())
    answers = [estimate_text("\n".join(format_search_result(each.labelled.words, each.tools))) for each in results]
    print(f"{len(offered.tools)} tools of {len(offered.guidance)} servers, {len(results)} questions")
    print(f"words of a question that its tool has, too   {shared_words(offered):8.0%}")
    for most in (1, 3, 5):
        print(f"recall@{most}                                     {recall(results, most):8.1%}")
    print(f"tokens of all definitions                    {estimate_tools(offered.tools):8,.0f}")
    print(f"tokens of the 128 that services take         {estimate_tools(within_limit(offered).tools):8,.0f}")
    print(f"tokens that a search adds, on average        {mean(answers):8,.0f}")


def _print_kinds(offered: ToolSet, embed: EmbedTexts | None) -> None:
    questions = labelled_questions()
    kinds = {
        kind: [each for each in questions if each.kind == kind] for kind in dict.fromkeys(q.kind for q in questions)
    }
    kinds |= {
        "not held out": [each for each in questions[:_TUNED] if not each.held_out],
        "held out": [each for each in questions if each.held_out],
        "all": list(questions),
    }
    indexes = [index_of(offered), *([index_of(offered, embed)] if embed else [])]
    names = listed_names(offered)
    print(f"\n{len(offered.tools)} tools of {len(offered.guidance)} servers, {len(questions)} questions")
    titles = ["recall@5", "recall@8"] + ["@5 meaning", "@8 meaning"] * (embed is not None) + ["name listed"]
    print(f"{'':18}{'':>5}" + "".join(f"{title:>12}" for title in titles))
    for kind, asked in kinds.items():
        shares = [recall(searches(index, asked), most) for index in indexes for most in (5, 8)]
        shares.append(mean(any(name in names for name in each.meant) for each in asked))
        print(f"{kind:18}{len(asked):5}" + "".join(f"{share:12.0%}" for share in shares))


def _print_costs(offered: ToolSet, embed: EmbedTexts | None) -> None:
    print(f"\ntokens of the bot's own tools, without names {_own_tokens(offered, 0):8,.0f}")
    print(f"with the names of {len(offered.tools)} tools                  {_own_tokens(offered, 100_000):8,.0f}")
    many = _many(offered)
    for label, used in (("words", None), ("words and meaning", embed)):
        if label == "words" or used is not None:
            began = time.perf_counter()
            index = index_of(many, used)
            built = time.perf_counter() - began
            results = searches(index, labelled_questions())
            print(f"{len(many.tools):,} tools, {label}: {built * 1000:,.0f} ms to index once, ", end="")
            print(f"{mean(each.seconds for each in results) * 1000:.1f} ms a search")


def _own_tokens(offered: ToolSet, names_tokens: int) -> float:
    return estimate_tools(select_builtin_tools(offered.tools, searches=True, names_tokens=names_tokens))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Quality and cost of the search among tools.")
    parser.add_argument("--embeddings", type=Path, metavar="FOLDER", help="a model2vec model")
    folder = parser.parse_args(arguments).embeddings
    embed = load_embedder(folder, "--embeddings") if folder else None
    _print_plain()
    offered = synthetic_tools(more=True)
    _print_kinds(offered, embed)
    _print_costs(offered, embed)


if __name__ == "__main__":
    main()
