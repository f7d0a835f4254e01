"""Noise is a budget: the posts and notifications of each kind of turn, on every chat platform."""

from __future__ import annotations

import asyncio

from bot.domain.completions import Completion, ModelRequest
from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.team import Team

LONG = "\n\n".join(f"Paragraph {n}. " + "The pool is too small. " * 12 for n in range(24))


async def test_a_quick_answer_is_one_post_and_a_slow_one_two_with_one_notification(team: Team) -> None:
    async def slowly(_request: ModelRequest) -> Completion:
        await team.until(lambda: any("Stop" in team.buttons(message) for message in team.messages(slow)))
        return say("Since noon.")

    team.model.script = [say("The pool."), slowly]
    async with team.working_on("why?") as quick:
        await team.reads(quick, "The pool.")
        assert (team.posts(), team.loud_posts()) == (1, 1)
    team.early_seconds = 0.1
    async with team.working_on("since when?") as slow:
        await team.reads(slow, "Since noon.")
        await team.until(lambda: len(team.messages(slow)) == 1)
    assert (team.posts(), team.loud_posts()) == (3, 3 if team.notifies_always else 2)


async def test_an_approval_is_its_card_and_the_answer(team: Team) -> None:
    team.toolbox.add(tool("notes__look", read_only=True))
    team.toolbox.add(tool("notes__add"))
    team.allowed = {"notes__look"}
    looks = ask_for(call("notes__look", "c1"), text="")
    team.model.script = [looks, ask_for(call("notes__add", "c2"), text="I add the note."), say("It is added.")]
    async with team.waiting_on("add a note") as (talk, card):
        assert team.posts() == 1
        assert "I add the note." in team.words(card)
        assert any(label.startswith("Stop") for label in team.buttons(card))
        await team.press(team.sam, card, "Approve")
        answer = await team.reads(talk, "It is added.")
        assert "notes.look" in team.words(answer)
        await team.settles(card)
    assert team.posts() == 2
    assert team.failed_calls() == []


async def test_neither_bystanders_nor_queued_messages_cause_a_post(team: Team) -> None:
    answers = asyncio.Event()

    async def slowly(_request: ModelRequest) -> Completion:
        await answers.wait()
        return say("The pool.")

    team.early_seconds, team.model.script = 60.0, [say("Hello."), slowly, say("Second."), say("Third.")]
    async with team.working_on("hello") as talk:
        await team.reads(talk, "Hello.")
        for text in ("why?", "and since when?", "and how?"):
            team.go_on(talk, text)
        team.go_on(talk, "+1", by=team.sam)
        await team.until(lambda: len(team.model.requests) == 2)
        assert team.posts() == 1
        answers.set()
        await team.reads(talk, "Third.")
    assert (team.posts(), len(team.model.requests)) == (4, 4)


async def test_a_server_that_is_away_is_named_once_a_thread_to_those_who_need_it(team: Team) -> None:
    team.toolbox.add(tool("notes__look", read_only=True))
    team.toolbox.unavailable = frozenset({"jira", "github"})
    team.toolbox.absent = ("Server jira is disconnected.", "Server github is disconnected.")
    wants = ask_for(call("jira__search"))
    team.model.script = [say("Hello."), wants, say("I cannot."), wants, say("Not now.")]
    async with team.working_on("hello") as talk:
        assert "jira" not in team.words(await team.reads(talk, "Hello."))
        team.go_on(talk, "search")
        assert "Server jira was not available." in team.words(await team.reads(talk, "I cannot."))
        team.go_on(talk, "search again")
        assert "was not available" not in team.words(await team.reads(talk, "Not now."))
    assert "Server github" not in team.visible_text(talk)


async def test_only_the_first_message_of_a_long_answer_notifies(team: Team) -> None:
    team.model.script = [say(LONG)]
    async with team.working_on("tell me all") as talk:
        await team.reads(talk, "Paragraph 23.")
    assert team.posts() > 1
    assert team.loud_posts() == (team.posts() if team.notifies_always else 1)


async def test_japanese_is_split_as_late_as_english(team: Team) -> None:
    posts = []
    team.model.script = [say((word * 40 + "\n\n") * 40 + "The end.") for word in ("pool ", "プールは、")]
    async with team.at_work():
        for _language in ("English", "Japanese"):
            before = team.posts()
            await team.reads(team.ask("tell me"), "The end.")
            posts.append(team.posts() - before)
    assert posts[0] == posts[1] > 1
