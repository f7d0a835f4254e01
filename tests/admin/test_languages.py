"""Commands in another language: all texts are translated, except those of users, servers and the operator."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest

from bot.domain.commands import Form, Reply, reply_json
from bot.domain.conversations import Member
from bot.i18n import use_language
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness
from tests.admin.test_every_subcommand import CASES, build_harness
from tests.i18n.pseudo_language import PSEUDO_LANGUAGE, untranslated_words

OTHERS = (
    "mcp add",
    "mcp add x --url nonsense",
    "mcp edit jira",
    "mcp edit jira --tool-timeout x",
    "mcp nonsense",
    "mcp list --nonsense",
    "mcp policy set",
    "mcp policy set jira nonsense ask",
    "mcp policy set jira create_issue ask --quorum 2 --four-eyes --expires 1h --asker members",
    "mcp policy list",
    "mcp policy explain nothing",
    "mcp prompt ask notes summary",
    "mcp remove jira",
    "mcp resource ask notes notes://1",
    "mcp secret set jira auth",
    "mcp show notes",
    "mcp show web-search",
    "mcp log",
    "mcp stats",
    "mcp doctor",
    "mcp run jira create_issue title",
    "mcp log --since nonsense",
    "profile set",
    "profile set Support",
    "profile set Support --policy x --timezone Mars --prompt a --approver x --tool x",
    "profile delete Support",
    "conversations delete hall:1",
    "conversations show nothing",
    "nonsense",
)
"""Lines beside those of every verb: forms, questions and rejections."""
NOT_OURS = (
    r"`[^`]*`",
    r"\b[a-z][a-z+.-]*:(//)?[^\s⟦⟧]+",  # addresses, ids and references
    r"/[a-z]+ [^\n⟦⟧]*",  # commands
    r"--[a-z-]+",
    r"\b[0-9a-f]{8,}\b",
    r"\b[A-Z][A-Z_:.=|]+\b",
    r"\b\w+(?:[._-]\w+)+\b",  # names of tools and files, ids
)
DATA = frozenset(
    re.findall(
        r"\w+",
        """
    jira notes web search linear sentry first topic summary Sum up list add delete turn hall Ana ana ben hello
    Hello Support Ops Kind stdio streamable HTTP python Server cannot be reached Fix start it Quota is used rule
    Reached strangers world name token host ask allow deny auto channel workspace everywhere server access of the
    instance Workflows an that are available in MCP The under Settings Instance level such as create issue members
    file config bot
    Esperanto eo Asia Tokyo
""",
    )
)
"""Words of the harness, of the catalog of servers, and of commands."""


def shown_texts(answer: Reply | Form) -> Iterator[str]:
    if isinstance(answer, Form):
        yield from (answer.title, answer.intro, answer.submit)
        for field in answer.fields:
            yield from (field.label, field.hint, field.error)
        return
    yield answer.text
    if answer.table is not None:
        yield from answer.table.headings
        yield from (cell for row in answer.table.rows for cell in row)
    for name, value in answer.details:
        yield from (name, *(() if name in ("usage", "also") else (value,)))
    for action in answer.actions:
        yield from (action.label, action.question)


def english_words(answer: Reply | Form) -> set[str]:
    words: set[str] = set()
    for text in map(str, shown_texts(answer)):
        rest = text
        for pattern in NOT_OURS:
            rest = re.sub(pattern, " ", rest)
        words.update(untranslated_words(rest))
    return words - DATA


def help_lines() -> Iterator[str]:
    for command, verbs in CommandHarness().registry.verbs.items():
        yield from (f"{command} help {verb.path}" for verb in verbs if verb.path)


async def answers_in(language: str, line: str, member: Member) -> tuple[CommandHarness, list[Reply | Form]]:
    held = await build_harness()
    with use_language(language):
        return held, await held.answers(*shlex.split(line), member=member)


@pytest.mark.usefixtures("pseudo_language")
@pytest.mark.parametrize("line", [*(case.line for case in CASES), *OTHERS])
async def test_an_answer_is_in_the_language_of_its_reader(line: str) -> None:
    member = next((case.by for case in CASES if case.line == line), ADMIN)
    held, answers = await answers_in(PSEUDO_LANGUAGE, line, member)
    command, _, rest = line.partition(" ")
    verbs = {word for verb in held.registry.verbs[command] for word in verb.path.split()} if rest == "help" else set()
    with use_language(PSEUDO_LANGUAGE):
        assert [english_words(answer) - verbs for answer in answers] == [set()] * len(answers)
    assert "⟦" not in repr([store.audit for store in (held.store, held.policies, held.profiles, held.grants)])


@pytest.mark.usefixtures("pseudo_language")
async def test_the_help_of_every_verb_is_in_the_language_of_its_reader() -> None:
    for line in help_lines():
        _held, [answer] = await answers_in(PSEUDO_LANGUAGE, line, OPERATOR)
        assert isinstance(answer, Reply)
        summary = answer.text.partition(": ")[2]
        shown = [summary, *(value for name, value in answer.details if name not in ("usage", "also"))]
        with use_language(PSEUDO_LANGUAGE):
            assert [words for text in shown if (words := untranslated_words(str(text)))] == [], line


@pytest.mark.usefixtures("pseudo_language")
@pytest.mark.parametrize("line", [case.line for case in CASES])
async def test_a_program_finds_the_same_keys_in_every_language(line: str) -> None:
    member = next(case.by for case in CASES if case.line == line)
    keys = []
    for language in ("en", PSEUDO_LANGUAGE):
        _held, answers = await answers_in(language, line, member)
        with use_language(language):
            read = json.loads(json.dumps(reply_json(answers[-1])))
        keys.append((sorted(read), sorted(read["details"]), [sorted(row) for row in read["rows"] or ()]))
    assert keys[0] == keys[1]
