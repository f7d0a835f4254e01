"""Values for the slots of a launch template."""

from __future__ import annotations

import re

import pytest

from bot.domain.launch_templates import (
    LONGEST_COMMAND,
    ChoiceRule,
    IntegerRule,
    InvalidSlotValue,
    LaunchTemplate,
    PathRule,
    SecretRule,
    SlotRule,
    TemplateSlot,
    TextRule,
    expand_template,
)
from bot.domain.servers import ServerConfig, StdioTransport, TemplateLaunch

GIT = LaunchTemplate(
    "git",
    "uvx",
    ("mcp-server-git@1.2.3", "--repository={repo}", "--level", "{level}", "{{literally}}"),
    (
        TemplateSlot("repo", PathRule("/srv/repos")),
        TemplateSlot("level", IntegerRule(1, 9), default="3"),
        TemplateSlot("token", SecretRule("GIT_TOKEN")),
    ),
    env={"TZ": "UTC"},
    cwd="/srv",
)


def wrong(rule: SlotRule, text: str, *, dashed: bool = False) -> str:
    with pytest.raises(InvalidSlotValue) as caught:
        LaunchTemplate("x", "run", ("{a}",), (TemplateSlot("a", rule, dashed=dashed),)).fill_slots({"a": text})
    return caught.value.errors["a"]


def fill_slot(rule: SlotRule, text: str, *, dashed: bool = False) -> str:
    [word] = (
        LaunchTemplate("x", "run", ("{a}",), (TemplateSlot("a", rule, dashed=dashed),)).fill_slots({"a": text}).args
    )
    return word


def test_a_template_gives_its_own_command_line_with_the_values_in_their_places() -> None:
    assert GIT.fill_slots({"repo": "docs"}) == StdioTransport(
        "uvx",
        ("mcp-server-git@1.2.3", "--repository=/srv/repos/docs", "--level", "3", "{literally}"),
        {"TZ": "UTC"},
        "/srv",
        TemplateLaunch("git", {"repo": "docs"}),
    )


@pytest.mark.parametrize(
    "value", ["a b", "a;rm -rf /", "$(id)", "`id`", "a' 'b", 'a" "b', "{level}", "{{a}}", "a|b&c", "*"]
)
def test_one_argument_stays_one_argument_with_any_value(value: str) -> None:
    assert fill_slot(TextRule(re.compile(".*")), value) == value


@pytest.mark.parametrize("value", ["-x", "--upload-pack=id", "-"])
def test_a_value_becomes_no_option_unless_the_slot_allows_it(value: str) -> None:
    assert wrong(TextRule(re.compile(".*")), value) == "It must not begin with a dash."
    assert fill_slot(TextRule(re.compile(".*")), value, dashed=True) == value
    assert fill_slot(PathRule("/srv"), value) == f"/srv/{value}"


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a\x1b[2Kb", "a\u202eb", "a\u200bb", "a\u3164", "\u2800", "x" * 501])
def test_invisible_characters_are_refused(value: str) -> None:
    assert "all of which can be seen" in wrong(TextRule(re.compile("(?s).*")), value)


@pytest.mark.parametrize("value", ["../etc", "docs/../../etc", "/etc/passwd", "/srv/repos2", "..", "/srv/repos/../x"])
def test_a_path_stays_below_its_folder(value: str) -> None:
    assert wrong(PathRule("/srv/repos"), value) == "A path below /srv/repos, without `..` in it."


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("docs", "/srv/repos/docs"),
        ("a/./b", "/srv/repos/a/b"),
        (".", "/srv/repos"),
        ("/srv/repos/x y", "/srv/repos/x y"),
    ],
)
def test_a_path_is_filled_in_as_an_absolute_one(value: str, path: str) -> None:
    assert fill_slot(PathRule("/srv/repos"), value) == path


@pytest.mark.parametrize("value", ["0", "10", "1_0", "٣", "3.0", "x", " 3"])
def test_a_number_is_whole_and_within_its_limits(value: str) -> None:
    assert wrong(IntegerRule(1, 9), value) == "A whole number from 1 to 9."
    assert fill_slot(IntegerRule(1, 9), "007") == "7"


def test_a_text_fits_its_expression_as_a_whole_and_a_choice_is_one_of_them() -> None:
    assert "[a-z]+" in wrong(TextRule(re.compile("[a-z]+")), "abc def")
    assert wrong(ChoiceRule(("read", "write")), "reads") == "One of: read, write."
    assert fill_slot(ChoiceRule(("read", "write")), "read") == "read"


def test_everything_that_is_wrong_is_said_at_once_by_slot() -> None:
    with pytest.raises(InvalidSlotValue) as caught:
        GIT.fill_slots({"level": "12", "branch": "main", "token": "env:X"})
    assert set(caught.value.errors) == {"repo", "level", "branch", "token"}
    assert caught.value.errors["repo"] == "It is missing."


def test_a_command_line_is_no_longer_than_everybody_sees() -> None:
    slots = tuple(TemplateSlot(name, TextRule(re.compile(".*"))) for name in "abcd")
    template = LaunchTemplate("x", "run", ("{a}", "{b}", "{c}", "{d}"), slots)
    with pytest.raises(InvalidSlotValue) as caught:
        template.fill_slots(dict.fromkeys("abcd", "x" * 460))
    assert str(LONGEST_COMMAND) in caught.value.errors[""]


def test_a_server_is_completed_with_the_present_command_of_its_template() -> None:
    config = ServerConfig("docs", StdioTransport("", launch=TemplateLaunch("git", {"repo": "docs"})))
    whole = expand_template(config, {"git": GIT}).transport
    assert isinstance(whole, StdioTransport)
    assert whole.args[1] == "--repository=/srv/repos/docs"
    assert expand_template(config, {}) == config
    misfit = ServerConfig("docs", StdioTransport("", launch=TemplateLaunch("git", {"repo": "/etc"})))
    assert expand_template(misfit, {"git": GIT}) == misfit
