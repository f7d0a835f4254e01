"""Names of agents in messages."""

from __future__ import annotations

import pytest

from bot.domain.agents import PLACE_AGENT, Addressed, AgentRef, Agents, UnknownName
from bot.domain.profiles import name_error

SUPPORT, NIGHT, JAPANESE = AgentRef("p1", "support"), AgentRef("p2", "Night shift"), AgentRef("p3", "サポート")
AGENTS = Agents((SUPPORT, NIGHT, JAPANESE), ("finance",))


@pytest.mark.parametrize(
    ("text", "agent", "rest"),
    [
        ("as support how do I reset it?", SUPPORT, "how do I reset it?"),
        ("As SUPPORT, how?", SUPPORT, "how?"),
        ("as \uff53\uff55\uff50\uff50\uff4f\uff52\uff54 how?", SUPPORT, "how?"),
        ("ask support: how?", SUPPORT, "how?"),
        ("/ask support how?", SUPPORT, "how?"),
        ("as night  SHIFT what happened?", NIGHT, "what happened?"),
        ('as "Night shift" what happened?', NIGHT, "what happened?"),
        ("as “Night shift” what happened?", NIGHT, "what happened?"),
        ("as support\nfirst line\nsecond line", SUPPORT, "first line\nsecond line"),
        ("as support", SUPPORT, ""),
        ("as サポート 直し方は", JAPANESE, "直し方は"),
        ("as サポート、直し方は", JAPANESE, "直し方は"),
        ("サポートとして、直し方は", JAPANESE, "直し方は"),
        ("「サポート」として教えて", JAPANESE, "教えて"),
        ("supportとして教えて", SUPPORT, "教えて"),
        ("as default how?", PLACE_AGENT, "how?"),
    ],
)
def test_a_message_names_an_agent_at_its_beginning(text: str, agent: AgentRef, rest: str) -> None:
    assert AGENTS.read_address(text) == Addressed(agent, rest)


@pytest.mark.parametrize(
    "text",
    [
        "how do I reset it?",
        "as soon as you can, say how",
        "as of today, which are open?",
        "ask Ben about it",
        "supporting as support does",
        "assupport how?",
        "管理者として何ができますか",
        "",
    ],
)
def test_other_words_are_a_question_without_an_agent(text: str) -> None:
    assert AGENTS.read_address(text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("as suport how do I?", Addressed(SUPPORT, "how do I?")),
        ("as night shfit, what happened?", Addressed(NIGHT, "what happened?")),
        ("as サポト 直し方は", Addressed(JAPANESE, "直し方は")),
        ("as finance how much?", None),
        ("/ask nobody how?", None),
    ],
)
def test_an_unknown_name_is_recognized_with_the_one_that_was_meant(text: str, meant: Addressed | None) -> None:
    assert AGENTS.read_address(text) == UnknownName(meant)


def test_the_longest_name_counts() -> None:
    night = AgentRef("p4", "Night")
    assert Agents((night, NIGHT)).read_address("as night shift how?") == Addressed(NIGHT, "how?")
    assert Agents((night, NIGHT)).read_address("as night how?") == Addressed(night, "how?")


def test_the_name_of_the_place_means_the_profile_that_holds_there_also_beside_an_old_agent_of_that_name() -> None:
    assert Agents((AgentRef("p5", "Default"),)).find("default") == PLACE_AGENT
    assert Agents().find("default") == PLACE_AGENT
    assert Agents().find("support") is None


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        *(
            ("SUPPORT", True),
            ("\uff33upport", True),
            ("sup\u200bport", True),
            ("support\u3164", True),
            ("sup port", True),
        ),
        *(("supp\u043ert", True), ("\u0455uppo\u0433t", True), ("supp0rt", True), ("BIlIing", True), ("b1lling", True)),
        *(
            ("night\u2013shift", True),
            ("NIGHT-SHIFT", True),
            ("supports", False),
            ("\u30c7\u30fc\u30bf", False),
            ("bill", False),
        ),
    ],
)
def test_a_profile_cannot_have_a_name_that_looks_like_anothers(name: str, is_taken: bool) -> None:
    assert bool(name_error(name, ("support", "billing", "night-shift"), is_agent=False)) == is_taken


@pytest.mark.parametrize(
    ("name", "as_profile", "as_agent"),
    [
        *(("default", True, False), ("Default", True, False), ("d\u0435fault", False, False)),
        *(
            ("def\u2060ault", False, False),
            ("d\u0332e\u2800fault", False, False),
            ("defau1t", False, False),
            ("de fault", False, False),
            ("defaults", True, True),
        ),
    ],
)
def test_no_agent_has_the_name_of_the_place_and_no_profile_one_like_it(
    name: str, as_profile: bool, as_agent: bool
) -> None:
    assert (not name_error(name, (), is_agent=False)) == as_profile
    assert (not name_error(name, (), is_agent=True)) == as_agent
