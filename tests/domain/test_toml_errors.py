"""Errors of TOML files that people write."""

from __future__ import annotations

import tomllib

import pytest

from bot.domain.toml_errors import toml_problem


def problem(text: str) -> str:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    return toml_problem(text, caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "default = ask\n",
        "command = npx -y foo\n",
        "a = 1\nargs = [npx, foo]\n",
        "args = [\n  npx,\n]\n",
        "path = /srv/x\n",
        "when = 30m\n",
        "name = info\n",
        "url = https://a.example\n",
    ],
)
def test_a_text_without_quotes_is_named_as_such(text: str) -> None:
    said = problem(text)
    assert said.endswith('A text needs quotes, such as name = "value"')
    assert "(at line " in said


@pytest.mark.parametrize("text", ['a = "x\n', "a = 1\na = 2\n", "[a\nb = 1\n", 'a = {"b" 1}\n'])
def test_other_errors_are_the_parsers(text: str) -> None:
    assert "quotes" not in problem(text)
