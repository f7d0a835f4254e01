"""Several agents in one channel, addressed by name, on every chat platform."""

from __future__ import annotations

from bot.domain.completions import ModelRequest
from bot.domain.profiles import Binding, Profile, ServersEnabled
from tests.admin.servers import CommandHarness, two_servers
from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.team import Team

SUPPORT = Profile("p1", "support", persona="You are support.", about="Answers questions about orders")
DATA = Profile("p2", "データ", persona="You are data.", servers=frozenset())
FINANCE = Profile("p3", "finance", persona="You are finance.")
GONE = "cannot be asked here any more"


def with_agents(team: Team) -> None:
    """Support and data answer to their names in the channel; finance does in no place."""
    here = team.place(team.channel)  # type: ignore[attr-defined]
    team.profiles = (SUPPORT, DATA, FINANCE)
    team.bindings = (Binding(here, "p1", by_name=True), Binding(here, "p2", by_name=True))
    held = CommandHarness()
    held.profiles.entries = {profile.id: profile for profile in team.profiles}
    held.profiles.by_name = [(binding.place, binding.profile) for binding in team.bindings]
    team.commands = held.registry


def persona(request: ModelRequest) -> str:
    """The persona in a request to the model: support, data, or none."""
    prompt = request.messages[0].text
    return next((name for name in ("support", "data", "finance") if f"You are {name}." in prompt), "")


async def test_an_agent_that_is_named_answers_and_the_thread_goes_on_with_it(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By support."), say("Once more."), say("By data."), say("Data again."), say("By the bot.")]
    async with team.at_work() as engine:
        talk = team.ask("as SUPPORT, where is my order?")
        answer = await team.reads(talk, "By support.")
        assert "Agent: support" in team.words(answer)
        question = (await team.turn(engine, talk)).turn.question
        assert question.text == "where is my order?"
        assert question.agent is not None
        assert question.agent.id == "p1"
        team.go_on(talk, "and the other one?")
        assert "Agent: support" in team.words(await team.reads(talk, "Once more."))
        team.go_on(talk, f"{team.mention} as データ how many are there?")
        assert "Agent: データ" in team.words(await team.reads(talk, "By data."))
        team.go_on(talk, "and last month?")
        await team.reads(talk, "Data again.")
        team.go_on(talk, f"{team.mention} as default who are you?")
        assert "Agent:" not in team.words(await team.reads(talk, "By the bot."))
    assert [persona(request) for request in team.model.requests] == ["support", "support", "data", "data", ""]
    asked, reply = team.model.requests[2].messages[1:3]
    assert "to the agent support:" in asked.text.lower()
    assert asked.text.endswith("where is my order?")
    assert reply.text == "By support."
    assert "to the agent データ:" in team.model.requests[2].messages[-1].text.lower()


async def test_without_a_name_the_bot_answers_itself(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("As always.")]
    async with team.at_work():
        answer = await team.reads(team.ask("as soon as possible: where is my order?"), "As always.")
        assert "Agent:" not in team.words(answer)
    assert persona(team.model.requests[0]) == ""


async def test_a_mistyped_name_is_answered_in_private_with_a_button_that_asks(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By support.")]
    async with team.at_work():
        team.ask("as suport where is my order?")
        await team.until(lambda: team.private_offers(team.priya, "Ask support"))
        offer = team.private_offers(team.priya, "Ask support")[-1]
        assert "There is no agent of that name here. Agents here: support, データ" in team.words(offer)
        assert team.model.requests == []
        await team.press(team.priya, offer, "Ask support")
        await team.until(lambda: team.model.requests)
    assert persona(team.model.requests[0]) == "support"


async def test_an_agent_of_another_place_is_not_reached(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("Nobody should hear this.")]
    async with team.at_work():
        team.ask("as finance what did it cost?")
        await team.until(lambda: private(team, "There is no agent of that name here."))
        elsewhere = (Binding(team.place(team.another_channel("hall")), "p1", by_name=True),)
        team.book.amend((), team.profiles, elsewhere)
        before = len(private(team, "There is no agent of that name here."))
        team.ask("as support where is my order?")
        await team.until(lambda: len(private(team, "There is no agent of that name here.")) > before)
    assert team.model.requests == []


async def test_a_command_asks_an_agent_and_lists_them(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By support.")]
    async with team.at_work():
        await team.command(team.priya, "ask", agent="support", question='what does "in transit" mean?')
        await team.until(lambda: team.model.requests)
        assert persona(team.model.requests[0]) == "support"
        assert team.model.requests[0].messages[-1].text.endswith('what does "in transit" mean?')
        await team.command(team.priya, "agents")
        await team.until(lambda: private(team, "Answers questions about orders"))


async def test_the_profile_of_the_agent_decides_about_tools_and_approvers(team: Team) -> None:
    ada = team.person("Ada")
    with_agents(team)
    support = Profile("p1", "support", persona="You are support.", approvers=frozenset({team.principal(ada)}))
    team.profiles = (support, DATA, FINANCE)
    team.toolbox.add(tool("bank__send"))
    team.model.script = [
        ask_for(call("bank__send", to="Ben")),
        say("Sent."),
        ask_for(call("bank__send", "c2", to="Ben")),
        say("I may not."),
    ]
    async with team.waiting_on("as support pay Ben", by=team.sam) as (talk, card):
        assert "support" in team.words(card)
        await team.press(team.priya, card, "Approve", old=team.screen(card))
        await team.hears(team.priya, "You may not approve this.")
        await team.open_list(ada)  # it waits for her, as the agent's profile says
        await team.sees(ada, "Approve")
        await team.press(ada, card, "Approve")
        await team.reads(talk, "Sent.")
        other = team.ask("as データ pay Ben", by=team.sam)
        await team.reads(other, "I may not.")
    assert team.toolbox.names == ["bank__send"]


async def test_a_thread_of_an_agent_that_has_left_says_so_and_another_can_be_named(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By support."), say("By data.")]
    async with team.working_on("as support where is my order?") as talk:
        await team.reads(talk, "By support.")
        team.book.amend((), team.profiles, team.bindings[1:])
        team.go_on(talk, f"{team.mention} and the other one?")
        await team.reads(talk, GONE)
        team.go_on(talk, f"{team.mention} as データ and the other one?")
        await team.reads(talk, "By data.")
    assert [persona(request) for request in team.model.requests] == ["support", "data"]


async def test_an_edit_may_name_another_agent(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By support."), say("By data.")]
    async with team.working_on("as support where is my order?") as talk:
        await team.reads(talk, "By support.")
        team.edit(talk, "as データ where is my order?")
        await team.until(lambda: team.private_offers(team.priya, "Ask again with this"))
        await team.press(team.priya, team.private_offers(team.priya, "Ask again with this")[-1], "Ask again with this")
        await team.reads(talk, "By data.")
    assert [persona(request) for request in team.model.requests] == ["support", "data"]


def private(team: Team, text: str) -> list[str]:
    """Return the texts that Priya alone reads."""
    messages = [*team.alone(team.priya), *team.messages_in(team.direct(team.priya))]
    return [words for words in map(team.words, messages) if text in words]


async def test_a_command_without_words_opens_a_form_with_the_agents(team: Team) -> None:
    with_agents(team)
    team.model.script = [say("By data.")]
    async with team.at_work():
        await team.command(team.priya, "agents")
        await team.press(team.priya, await team.sees(team.priya, "Ask データ"), "Ask データ")
        await team.fill_in(team.priya, {"Agent": "データ", "Question": "how many?"})
        await team.until(lambda: team.model.requests)
    assert persona(team.model.requests[0]) == "data"
    assert team.model.requests[0].messages[-1].text.endswith("how many?")


async def test_a_server_is_off_until_an_admin_presses_the_button_that_enables_it_here(team: Team) -> None:
    held = CommandHarness(two_servers(), servers_enabled=ServersEnabled.PER_PROFILE)
    team.commands, team.servers_enabled = held.registry, ServersEnabled.PER_PROFILE
    team.toolbox.add(tool("notes__add", server_id=held.servers.servers()[0].config.id))
    team.model.script = [say("Nothing."), say("Something.")]
    async with team.at_work():
        await team.reads(team.ask("what do you have?"), "Nothing.")
        await team.command(team.sam, "mcp list")
        offer = await team.sees(team.sam, "Enable notes here")
        assert "off for default: /profile enable notes" in team.words(offer)
        await team.press(team.sam, offer, "Enable notes here")
        await team.until(lambda: held.profiles.entries)
        team.book.amend((), held.profiles.entries.values(), await held.profiles.bindings())
        await team.reads(team.ask("and now?"), "Something.")
    before, after = ([given.name for given in request.tools] for request in team.model.requests)
    assert ("notes__add" in before, "notes__add" in after) == (False, True)
