"""Search terms of a question, judged by the matches in SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_servers.knowledge.tokenizer import LONGEST_QUESTION, MOST_TERMS, index_terms, question

ANYTHING = st.text() | st.text(alphabet='"*^+-:(){}ANDORNET \x00\ud800茶を承認')
OPERATORS = [
    '"',
    '"a',
    "a AND",
    "NEAR(a b, 2)",
    "title : a",
    "a*",
    "^a",
    "-a",
    "a + b",
    "{title text} : a",
    "(",
    "';--",
]


@contextlib.contextmanager
def holding(*texts: str) -> Iterator[sqlite3.Connection]:
    """Return a bare index of these texts, numbered from 1."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61 remove_diacritics 2')")
        database.executemany("INSERT INTO words VALUES (?)", [(index_terms(text),) for text in texts])
        yield database


def matching_numbers(text: str, *texts: str) -> list[int]:
    """Return the numbers of the texts that a question finds."""
    wanted = question(text)
    if wanted is None:
        return []
    with holding(*texts) as database:
        rows = database.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid", (wanted.expression,))
        return [row[0] for row in rows]


@given(ANYTHING)
def test_no_question_is_an_error(text: str) -> None:
    assert set(matching_numbers(text, "a", "AND or not", "茶を承認")) <= {1, 2, 3}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_of_the_query_language_are_mere_words(operator: str) -> None:
    assert matching_numbers(f"{operator} kettle", "the kettle", "the pot") == [1]


@given(st.text(alphabet="abcdefgäöüñ ХУпривет", min_size=1).filter(str.strip))
def test_a_text_is_found_by_its_own_words(text: str) -> None:
    assert matching_numbers(text, text, "0") == [1]


@given(st.text(alphabet="承認期限申請カタナ한국어漢", min_size=1, max_size=12), st.text(alphabet="申請書は。 x漢"))
def test_a_text_without_spaces_is_found_by_every_part_of_it(part: str, around: str) -> None:
    assert matching_numbers(part, f"{around}{part}{around}", "0") == [1]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("approve", "How approvals work"),
        ("APPROVED", "an approval"),
        ("cafe", "Café"),
        ("\uff21\uff30\uff29", "the api"),
        ("e\u0301cole", "École"),
        ("always_allow", "ALWAYS_ALLOW"),
        ("承認", "この承認者は"),
        ("\uff76\uff80\uff85", "カタナ"),
        ("お茶はどこですか", "お茶の時間"),
        ("動きますか", "自動で動く"),
        ("承認はどうしますか", "承認の方法"),
        ("승인", "승인은 어떻게"),
        ("审批流程是什么", "流程"),
        ("東京のoffice", "Office hours"),
        ("हिन्दी", "यह हिन्दी है"),
    ],
)
def test_a_text_is_found_however_the_word_is_written(asked: str, text: str) -> None:
    assert matching_numbers(asked, "nothing", text) == [2]


@pytest.mark.parametrize(
    "talk", ["thanks, how are you?", "hello", "What is it?", "そうですか", "はい", "👍", "  ", "\x00"]
)
def test_small_talk_finds_nothing(talk: str) -> None:
    assert (
        matching_numbers(
            talk, "How it is done and what you are to do. I thank all.", "そのようにするのですが、はじめに"
        )
        == []
    )


def test_common_words_are_found_where_there_are_no_others_and_they_stand_side_by_side() -> None:
    assert matching_numbers("Who is who?", "Who is who", "who knows who that is") == [1]
    assert matching_numbers("ひらがな", "これはひらがなです", "ひらいて、がなる") == [1]


def test_common_words_are_left_out_where_there_are_others() -> None:
    assert matching_numbers("how do approvals work", "how do you do", "work", "approval") == [2, 3]
    assert matching_numbers("承認はどうですか", "どうですか", "承認") == [2]


def test_of_an_endless_question_only_the_beginning_is_looked_at() -> None:
    wanted = question(" ".join(f"word{n}" for n in range(10_000)))
    assert wanted is not None
    assert wanted.terms == tuple(f"word{n}" for n in range(MOST_TERMS))
    assert question(" " * LONGEST_QUESTION + "kettle") is None
    assert matching_numbers("x" * 5000 + " kettle", "kettle") == [1]
