"""Words of texts and identifiers, and their normalized form."""

from __future__ import annotations

import pytest

from bot.domain.vocabulary import stem, terms, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Delete the old policies", ["delet", "old", "policy"]),
        ("createIssue", ["creat", "issu"]),
        ("getHTTPStatus-code", ["get", "http", "status", "cod"]),
        ("Ana's notes don\u2019t count", ["ana", "not", "count"]),
        ("課題を作成", ["課題", "題を", "を作", "作成"]),
        ("東", ["東"]),
        ("東京 weather", ["東京", "weather"]),
        ("", []),
    ],
)
def test_terms_are_stems_of_words_and_pairs_of_characters(text: str, found: list[str]) -> None:
    assert list(terms(text)) == found


@pytest.mark.parametrize(
    "forms",
    [
        "note notes noted",
        "save saves saved saving",
        "schedule scheduling scheduled",
        "delete deletion deleting",
        "policy policies",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


def test_words_know_their_place() -> None:
    text = "Bob's café, 東京!"
    assert [text[word.start : word.end] for word in words(text)] == ["Bob's", "café", "東京"]
    assert [word.base for word in words(text)] == ["bob", "café", "東京"]
