"""Keys of conversations and names of users."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.conversations import Author, ConversationKey

PART = st.text(st.characters(exclude_categories=["Cs"]))


@given(PART, PART, PART, PART)
def test_a_key_of_any_characters_is_read_back_from_its_text(a: str, b: str, c: str, d: str) -> None:
    key = ConversationKey(a, b, c, d)
    assert ConversationKey.parse(str(key)) == key


@given(st.tuples(PART, PART, PART, PART), st.tuples(PART, PART, PART, PART))
def test_two_conversations_never_share_a_text(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert (str(ConversationKey(*one)) == str(ConversationKey(*other))) == (one == other)


def test_an_ordinary_key_reads_as_it_is_documented() -> None:
    assert str(ConversationKey("slack", "T1", "C1", "1719.0001")) == "slack:T1:C1:1719.0001"
    assert str(ConversationKey("console", "local", "a:b", "x")) == "console:local:a%3Ab:x"


@pytest.mark.parametrize("text", ["", "slack", "slack:T1:C1", "slack:T1:C1:1:2"])
def test_anything_else_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="not a conversation key"):
        ConversationKey.parse(text)


def test_a_person_is_named_by_platform_and_id_and_never_by_their_name() -> None:
    assert Author("slack", "U1", "Ana").principal == Author("slack", "U1", "Anna").principal == "slack:U1"
