"""Parsing of a command's words by the verb's description."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.admin.command import CommandRejected, parse_arguments
from bot.admin.servers.editor import ServerAdd, ServerEdit
from bot.domain.commands import Parameter, ParameterKind, Verb

ADD, EDIT = (verbs.declared()[0].verb for verbs in (ServerAdd, ServerEdit))
VERB = Verb(
    "add",
    "adds",
    (
        Parameter("name", "its name", required=True),
        Parameter("url", "where", ParameterKind.OPTION),
        Parameter("arg", "more", ParameterKind.OPTION, repeated=True),
        Parameter("auth", "how", ParameterKind.OPTION, choices=("none", "api_key")),
        Parameter("trusted", "believe it", ParameterKind.FLAG),
    ),
)
REST = Verb("run", "runs", (Parameter("tool", "which", required=True), Parameter("values", "what", repeated=True)))


def test_options_stand_behind_their_name_or_an_equals_sign_in_any_order() -> None:
    one = parse_arguments(VERB, ["x", "--url", "u", "--arg", "a", "--arg=b", "--trusted"], "mcp")
    other = parse_arguments(VERB, ["--trusted", "--arg", "a", "--url=u", "x", "--arg", "b"], "mcp")
    assert dict(one.values) == dict(other.values)
    assert (one.get("name"), one.get("url"), one.get_all("arg"), one.has("trusted")) == ("x", "u", ("a", "b"), True)


def test_an_options_value_may_begin_with_dashes_and_hold_equals_signs() -> None:
    read = parse_arguments(VERB, ["x", "--arg", "--verbose", "--arg=a=b=c", "--url="], "mcp")
    assert read.get_all("arg") == ("--verbose", "a=b=c")
    assert read.has("url")
    assert read.get("url") == ""


def test_choices_are_read_in_any_spelling() -> None:
    assert parse_arguments(VERB, ["x", "--auth", "API-KEY"], "mcp").get("auth") == "api_key"


def test_the_rest_of_a_line_is_the_last_argument_with_its_options() -> None:
    assert parse_arguments(REST, ["t", "a=1", "--b", "c"], "mcp").get_all("values") == ("a=1", "--b", "c")


@pytest.mark.parametrize(
    ("words", "tool", "policy"), [(["jira", "ask"], "", "ask"), (["jira", "create", "deny"], "create", "deny")]
)
def test_a_place_that_may_be_empty_is_filled_after_those_that_may_not(words: list[str], tool: str, policy: str) -> None:
    verb = Verb(
        "set",
        "sets",
        (
            Parameter("server", "which", required=True),
            Parameter("tool", "one alone"),
            Parameter("policy", "what", required=True, choices=("ask", "deny")),
        ),
    )
    read = parse_arguments(verb, words, "mcp")
    assert (read.get("server"), read.get("tool"), read.get("policy")) == ("jira", tool, policy)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "`NAME` is missing: its name."),
        ([""], "`NAME` is missing"),
        (["x", "y"], "That is more than this takes."),
        (["x", "--ulr", "u"], "There is no option `--ulr`. Did you mean `--url`?"),
        (["x", "--zzzzzz"], "There is no option `--zzzzzz`. Usage"),
        (["x", "--a b"], "There is no such option. "),
        (["x", "--url"], "`--url` needs a value: where."),
        (["x", "--url", "a", "--url", "b"], "`--url` is given twice."),
        (["x", "--trusted=yes"], "`--trusted` takes no value."),
        (
            ["x", "--auth", "api_kee"],
            "`api_kee` is unknown: `--auth` is one of `none`, `api_key`. Did you mean `api_key`?",
        ),
        (["x", "--auth", "ghp_aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"], "`--auth` is one of `none`, `api_key`. Usage"),
    ],
)
def test_invalid_arguments_are_refused_with_the_usage(words: list[str], said: str) -> None:
    with pytest.raises(CommandRejected) as refusal:
        parse_arguments(VERB, words, "mcp")
    assert said in str(refusal.value)
    assert "Usage: `/mcp add NAME [--url URL] [--arg ARG…] [--auth none|api_key] [--trusted]`" in str(refusal.value)


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    for verb in (VERB, REST):
        with suppress(CommandRejected):
            assert parse_arguments(verb, words, "mcp").has(verb.places[0].name)


@pytest.mark.parametrize("verb", [ADD, EDIT])
def test_a_switch_needs_no_value_in_add_and_edit_alike(verb: Verb) -> None:
    for words, value in (
        (["x", "--trusted"], "yes"),
        (["--trusted", "x"], "yes"),
        (["x", "--trusted", "no"], "no"),
        (["x", "--trusted=yes", "--no-verify"], "yes"),
        (["x", "--trusted", "--no-verify"], "yes"),
        (["x", "--trusted", "template=git"], "yes"),
        (["x", "--trusted", "off"], "no"),
        (["--trusted=true", "x"], "yes"),
    ):
        read = parse_arguments(verb, words, "mcp")
        assert (read.get(verb.places[0].name), read.get("trusted")) == ("x", value)


@pytest.mark.parametrize("verb", [ADD, EDIT])
@pytest.mark.parametrize("words", [["x", "--ulr", "u"], ["x", "--zzz"], ["x", "--url"], ["x", "--auth", "maybe"]])
def test_misuse_of_a_verb_with_many_options_costs_a_line(verb: Verb, words: list[str]) -> None:
    with pytest.raises(CommandRejected) as refusal:
        parse_arguments(verb, words, "mcp")
    assert len(str(refusal.value)) < 320
    assert f"`/mcp help {verb.path}` lists the options." in str(refusal.value)
