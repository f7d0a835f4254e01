"""`/agents`, `/ask`, and profiles that are bound by name."""

from __future__ import annotations

from bot.domain.commands import Form, FormSubmission, Reply
from bot.domain.profiles import Profile
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, command_harness
from tests.fakes.parts import HALL

SUPPORT = Profile("p-1", "Support", "test:w", about="Answers questions about orders", version=1)
NIGHT = Profile("p-2", "Night shift", "test:w", servers=frozenset(), version=1)
JAPANESE = Profile("p-3", "データ", "test:w", version=1)
CHANNEL = "test:w:hall"


def harness() -> CommandHarness:
    held = command_harness()
    held.profiles.entries = {profile.id: profile for profile in (SUPPORT, NIGHT, JAPANESE)}
    held.profiles.by_name = [(CHANNEL, "p-1"), (CHANNEL, "p-2"), (CHANNEL, "p-3")]
    return held


async def run(held: CommandHarness, *words: str) -> Reply | Form:
    return (await held.answers(*words))[-1]


async def test_the_list_has_the_agents_of_a_channel_with_their_purpose() -> None:
    held = harness()
    held.profiles.bound = {CHANNEL: "p-2"}
    reply = await held.ask("agents")
    assert reply.table is not None
    assert reply.table.rows == (
        ("Night shift", "", "none", "without a name, too"),
        ("Support", "Answers questions about orders", "all", "by name"),
        ("データ", "", "all", "by name"),
    )
    assert [action.words for action in reply.actions] == [
        ("ask", "Night shift"),
        ("ask", "Support"),
        ("ask", "データ"),
    ]


async def test_a_question_goes_to_the_agent_whose_name_it_begins_with() -> None:
    held = harness()
    for words, name, text in (
        (("Support how do I?",), "Support", "how do I?"),
        (("support", 'what is "this" --now?'), "Support", 'what is "this" --now?'),
        (("night shift what happened?",), "Night shift", "what happened?"),
        (('"Night shift" what happened?',), "Night shift", "what happened?"),
        (("データ いくつ",), "データ", "いくつ"),
    ):
        reply = await run(held, "ask", *words)
        assert isinstance(reply, Reply)
        assert reply.message is not None
        assert reply.message.agent is not None
        assert (reply.message.agent.name, reply.message.text) == (name, text)
        assert not reply.private


async def test_an_unknown_name_is_answered_with_those_that_are_here() -> None:
    for words, meant in ((("suport how?",), "Support"), (("データー", "いくつ"), "データ")):
        reply = await run(harness(), "ask", *words)
        assert isinstance(reply, Reply)
        assert reply.failed
        assert ("here are", "Support, Night shift, データ") in reply.details
        assert ("did you mean", meant) in reply.details
        assert reply.actions[0].words == ("ask", meant, words[-1].split()[-1])
    reply = await run(harness(), "ask", "xyzzy how?")
    assert isinstance(reply, Reply)
    assert reply.details == (("here are", "Support, Night shift, データ"),)


async def test_without_a_question_a_form_asks_for_it() -> None:
    held = harness()
    form = await run(held, "ask", "Night shift")
    assert isinstance(form, Form)
    assert [(field.name, field.value, field.choices) for field in form.fields] == [
        ("agent", "Night shift", ("Support", "Night shift", "データ")),
        ("question", "", ()),
    ]
    fields = {"agent": "データ", "question": "いくつ"}
    submission = FormSubmission(form.id, fields, ADMIN, HALL)
    (reply,) = [answer async for answer in held.registry.handle(submission)]
    assert isinstance(reply, Reply)
    assert reply.message is not None
    assert reply.message.agent is not None
    assert (reply.message.agent.id, reply.message.text) == ("p-3", "いくつ")
    held.profiles.by_name.clear()
    (reply,) = [answer async for answer in held.registry.handle(submission)]
    assert isinstance(reply, Reply)
    assert reply.failed


async def test_names_are_completed_in_any_case_and_script() -> None:
    commands = harness().registry
    assert commands.complete("ask s", HALL) == ["ask Support"]
    assert commands.complete("ask デ", HALL) == ["ask データ"]
    assert commands.complete("ask ", HALL) == ["ask Support", "ask 'Night shift'", "ask データ"]
    assert commands.complete("ag", HALL) == ["agents"]


async def test_a_place_with_a_profile_of_its_own_takes_no_agents_from_wider_ones() -> None:
    held = harness()
    held.profiles.by_name = [("test:w", "p-1"), ("", "p-3")]
    assert [profile.name for profile in held.rule_book.agent_profiles(HALL)] == ["Support", "データ"]
    held.profiles.bound = {"test:w": "p-2"}
    assert [profile.name for profile in held.rule_book.agent_profiles(HALL)] == ["Night shift", "Support"]
    held.profiles.bound = {CHANNEL: "p-2"}
    assert [profile.name for profile in held.rule_book.agent_profiles(HALL)] == ["Night shift"]


async def test_admins_bind_by_name_and_only_the_operator_everywhere() -> None:
    held = harness()
    held.profiles.by_name.clear()
    assert (await held.ask("profile bind Support everywhere --agent")).failed
    reply = await held.ask("profile bind Support channel --agent")
    assert reply.text.startswith("The profile can be asked by name in this channel.")
    assert held.profiles.by_name == [(CHANNEL, "p-1")]
    assert ("asked by name in", "this channel") in (await held.ask("profile show Support")).details
    assert reply.actions[0].words == ("profile", "unbind", "channel", "--agent", "Support")
    undone = await held.run(*reply.actions[0].words)
    assert not undone.failed
    assert held.profiles.by_name == []
    assert (await held.ask("profile unbind channel --agent Support")).failed
    assert not (await held.ask("profile bind Support everywhere --agent", OPERATOR)).failed


async def test_the_purpose_of_an_agent_is_one_line() -> None:
    held = harness()
    assert not (await held.ask("profile set Support --about Orders")).failed
    assert held.profiles.entries["p-1"].about == "Orders"
    reply = await held.run("profile", "set", "Support", "--about", "x" * 201)
    assert reply.failed
    renamed = await held.run("profile", "set", "Support", "--rename", "x" * 101)
    assert [name for name, _ in renamed.details] == ["name"]
