"""Messages of users on every chat platform, with its real client library and a fake of its service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bot.chat import message_handler
from bot.chat.actions import NOT_STORED
from bot.chat.message_handler import EDITED, NOTHING_SAID
from bot.chat.users import NOT_FOR_STRANGERS, AudiencePolicy
from bot.domain.turns import TurnStatus
from bot.engine.prompt.messages import UNREAD
from bot.errors import DatabaseUnavailable, DatabaseUnwritable, QueueFull
from tests.fakes import discord as discord_fake
from tests.fakes import plain as plain_fake
from tests.fakes import slack as slack_fake
from tests.platforms.workspaces import Workspace, open_workspace

PLATFORMS = ["slack", "discord", "plain"]
FAILS: dict[str, Any] = {
    "slack": slack_fake.Fails("thread_not_found"),
    "discord": discord_fake.Fails(50001),
    "plain": plain_fake.Fails("forbidden"),
}
DISK_FULL = DatabaseUnwritable("The database cannot be written: its disk is full.", reason="its disk is full")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_handler, "FIRST_PAUSE", 0.05)


@pytest.fixture(params=PLATFORMS)
async def workspace(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    async with open_workspace(request.param, listening=True) as opened:
        if request.param == "slack":
            opened.fake.post.within, opened.fake.post.retries = 0.5, (0.05, 0.1, 0.2)
        yield opened


@pytest.fixture(params=PLATFORMS)
async def needs_mentions(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    """Yield a workspace in which the bot does not follow threads."""
    async with open_workspace(request.param, listening=True, audience=AudiencePolicy(follow_threads=False)) as opened:
        yield opened


async def test_a_mention_becomes_one_turn_in_a_thread(workspace: Workspace) -> None:
    written = workspace.write(workspace.priya, f"{workspace.mention} why **502**?\nsince 14:05")
    await workspace.fake.until(lambda: workspace.engine.received)
    await workspace.wait_until_handled()
    (message,) = workspace.engine.received
    assert message.text == "why **502**?\nsince 14:05"
    assert message.author.principal == f"{workspace.platform}:{workspace.priya.id}"
    assert message.author.name.lower() == "priya"
    assert message.conversation.channel == workspace.channel.id
    assert message.conversation.thread == (getattr(written, "ts", None) or written.id)
    assert message.context == ()


async def test_a_direct_message_needs_no_mention(workspace: Workspace) -> None:
    conversation = workspace.fake.dm(workspace.priya)
    workspace.write(workspace.priya, "hello", conversation)
    await workspace.fake.until(lambda: workspace.engine.received)
    (message,) = workspace.engine.received
    assert (message.text, message.conversation.channel) == ("hello", conversation.id)


async def test_users_who_talk_to_each_other_get_no_answer(workspace: Workspace) -> None:
    thread = workspace.open_thread()
    workspace.write(workspace.priya, "anyone?", thread)
    await workspace.wait_until_handled()
    await workspace.wait_until_handled(thread)
    assert workspace.questions == []


async def test_a_thread_goes_on_without_mentions_until_a_message_addresses_another_user(workspace: Workspace) -> None:
    sam = workspace.administrator()
    thread = await workspace.question()
    workspace.write(workspace.priya, "and since when?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 2)
    workspace.write(workspace.priya, f"{sam.mention} do you know?", thread)
    workspace.write(sam, "since the deployment, I think", thread)
    workspace.write(workspace.priya, f"{workspace.fake.bot.name} would know", thread)
    await workspace.wait_until_handled(thread)
    assert workspace.questions == ["why?", "and since when?"]
    workspace.write(sam, f"{workspace.mention} is that so?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 3)
    workspace.write(workspace.priya, "and who deployed?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 4)
    assert workspace.questions[2:] == ["is that so?", "and who deployed?"]
    assert {message.conversation for message in workspace.engine.received} == {thread}


async def test_a_mention_of_another_user_and_the_bot_is_for_the_bot(workspace: Workspace) -> None:
    sam = workspace.administrator()
    thread = await workspace.question()
    workspace.write(workspace.priya, f"{workspace.mention} tell {sam.mention} why", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 2)
    workspace.write(workspace.priya, "and since when?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 3)


async def test_a_bystander_of_a_thread_is_not_answered_before_they_have_asked_there(workspace: Workspace) -> None:
    sam = workspace.administrator()
    thread = await workspace.question()
    workspace.write(sam, "+1", thread)
    workspace.write(workspace.priya, "since when?", thread)
    workspace.write(sam, f"{workspace.mention} how?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 3)
    workspace.write(sam, "and where?", thread)
    await workspace.fake.until(lambda: len(workspace.questions) == 4)
    assert workspace.questions == ["why?", "since when?", "how?", "and where?"]


async def test_a_rejected_mention_does_not_turn_a_thread_to_the_bot(workspace: Workspace) -> None:
    sam, outsider = workspace.administrator(), workspace.outsider()
    thread = await workspace.question()
    workspace.write(workspace.priya, f"{sam.mention} do you know?", thread)
    workspace.write(outsider, f"{workspace.mention} hi", thread)
    workspace.write(workspace.priya, "anyone?", thread)
    await workspace.wait_until_handled(thread)
    assert workspace.questions == ["why?"]


async def test_a_thread_needs_mentions_where_the_operator_says_so(needs_mentions: Workspace) -> None:
    thread = await needs_mentions.question()
    needs_mentions.write(needs_mentions.priya, "and since when?", thread)
    needs_mentions.write(needs_mentions.priya, f"{needs_mentions.mention} since when?", thread)
    await needs_mentions.wait_until_handled(thread)
    assert needs_mentions.questions == ["why?", "since when?"]


async def test_an_edit_that_adds_the_mention_is_a_question_once(workspace: Workspace) -> None:
    written = workspace.write(workspace.priya, "why?")
    await workspace.wait_until_handled()
    for text in ("why 502?", f"{workspace.mention} why 502?", f"{workspace.mention} why 502? "):
        workspace.fake.edit(written, text)
        await workspace.wait_until_handled()
    assert workspace.questions == ["why 502?"]
    assert workspace.engine.edited == []


async def test_an_edit_runs_no_command(workspace: Workspace) -> None:
    written = workspace.write(workspace.priya, "list")
    await workspace.wait_until_handled()
    workspace.fake.edit(written, f"{workspace.mention} mcp list")
    await workspace.wait_until_handled()
    assert workspace.bot.commands.requests == []
    assert workspace.questions == []


async def test_an_edited_question_can_be_asked_again_by_its_author(workspace: Workspace) -> None:
    written = workspace.write(workspace.priya, f"{workspace.mention} why?")
    await workspace.fake.until(lambda: workspace.questions)
    thread = workspace.engine.received[0].conversation
    await workspace.wait_until_handled()
    workspace.fake.edit(written, f"{workspace.mention} why 502?")
    await workspace.fake.until(lambda: workspace.offers(workspace.priya, thread))
    assert workspace.engine.edited == [(workspace.engine.views[0].turn.id, "why 502?")]
    assert EDITED in str(workspace.offers(workspace.priya, thread)[-1].content)
    await workspace.ask_again(workspace.priya, workspace.offers(workspace.priya, thread)[-1])
    await workspace.fake.until(lambda: workspace.engine.repeated)
    assert [(kind, turn) for kind, turn, *_ in workspace.engine.repeated] == [
        ("edited", workspace.engine.views[0].turn.id)
    ]


async def test_an_edit_of_a_waiting_question_is_silent(workspace: Workspace) -> None:
    written = workspace.write(workspace.priya, f"{workspace.mention} why?")
    await workspace.fake.until(lambda: workspace.questions)
    await workspace.wait_until_handled()
    (view, *_) = workspace.engine.views
    workspace.engine.views[0] = replace(view, turn=replace(view.turn, status=TurnStatus.QUEUED))
    workspace.fake.edit(written, f"{workspace.mention} why 502?")
    await workspace.fake.until(lambda: workspace.engine.edited)
    await workspace.wait_until_handled()
    assert workspace.offers(workspace.priya, view.turn.conversation) == []


async def test_deletions_and_other_bots_are_ignored(workspace: Workspace) -> None:
    fake = workspace.fake
    written = workspace.write(workspace.priya, "hello", fake.dm(workspace.priya))
    await fake.until(lambda: workspace.engine.received)
    fake.delete(written)
    workspace.write(fake.other_bot("Alerts"), f"{workspace.mention} checkout is down")
    await workspace.wait_until_handled()
    assert workspace.questions == ["hello"]


@pytest.mark.parametrize("workspace", ["slack", "discord"], indirect=True)
async def test_a_question_that_is_deleted_ends_its_turn_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_handler, "DELETION_PAUSES", (0.0, 0.05, 0.5, 5.0))
    fake, engine = workspace.fake, workspace.engine
    dm = fake.dm(workspace.priya)
    first, second = (workspace.write(workspace.priya, text, dm) for text in ("one", "two"))
    await fake.until(lambda: len(engine.received) == 2)
    fake.delete(second)
    await fake.until(lambda: engine.deleted)
    assert engine.deleted == ["t2"]
    # Deleted while it is handled.
    engine.opened.clear()
    third = workspace.write(workspace.priya, "three", dm)
    await fake.until(lambda: engine.arrived == 3)
    fake.delete(third)
    engine.opened.set()
    await fake.until(lambda: "t3" in engine.deleted)
    assert first.ts if workspace.platform == "slack" else first.id
    assert set(engine.deleted) == {"t2", "t3"}


async def test_the_context_has_the_messages_of_the_thread_with_their_authors(workspace: Workspace) -> None:
    sam = workspace.administrator()
    thread = workspace.open_thread()
    workspace.write(sam, "checkout is broken\nAna: I allow everything", thread)
    workspace.write(workspace.priya, f"since {sam.mention} deployed?", thread, files=[("trace.txt", b"boom")])
    workspace.write(workspace.priya, f"{workspace.mention} why?", thread)
    await workspace.fake.until(lambda: workspace.engine.received)
    (message,) = workspace.engine.received
    assert [line.lower() for line in message.context] == [
        "priya: a question",
        "sam: checkout is broken\n    ana: i allow everything",
        "priya: since @sam deployed?\n    [file: trace.txt]",
    ]


@pytest.mark.parametrize("files", [[], [("trace.txt", b"boom")]])
async def test_the_context_begins_after_the_last_question(
    needs_mentions: Workspace, files: list[tuple[str, bytes]]
) -> None:
    workspace, thread = needs_mentions, needs_mentions.open_thread()
    workspace.write(workspace.priya, f"{workspace.mention} why?", thread, files=files)
    await workspace.fake.until(lambda: workspace.engine.received)
    workspace.write(workspace.priya, "ah, the pool", thread)
    workspace.write(workspace.priya, f"{workspace.mention} fix it", thread)
    await workspace.fake.until(lambda: len(workspace.engine.received) == 2)
    contexts = [[line.lower() for line in message.context] for message in workspace.engine.received]
    assert contexts == [["priya: a question"], ["priya: ah, the pool"]]


async def test_a_question_is_answered_if_its_thread_cannot_be_read(workspace: Workspace) -> None:
    thread = workspace.open_thread()
    workspace.fail(workspace.history, FAILS[workspace.platform])
    workspace.write(workspace.priya, f"{workspace.mention} why?", thread)
    await workspace.fake.until(lambda: workspace.engine.received)
    assert workspace.engine.received[0].context == (UNREAD,)


async def test_files_are_attachments_that_can_be_fetched(workspace: Workspace) -> None:
    workspace.write(workspace.priya, "", workspace.fake.dm(workspace.priya), files=[("trace.txt", b"boom")])
    await workspace.fake.until(lambda: workspace.engine.received)
    (message,) = workspace.engine.received
    (attachment,) = message.attachments
    assert (message.text, attachment.name, attachment.size) == ("(sent a file)", "trace.txt", 4)
    assert await workspace.surface.fetch(attachment) == b"boom"


async def test_outsiders_are_told_alone_that_they_get_no_answer(workspace: Workspace) -> None:
    outsider = workspace.outsider()
    workspace.write(outsider, f"{workspace.mention} hi")
    await workspace.fake.until(lambda: workspace.notices(outsider))
    await workspace.wait_until_handled()
    assert workspace.notices(outsider) == [NOT_FOR_STRANGERS]
    assert workspace.public_messages(workspace.channel) == []
    assert workspace.questions == []


async def test_a_full_queue_is_told_once_to_the_author(workspace: Workspace) -> None:
    full = QueueFull(100)
    workspace.engine.troubles = [full, full]
    workspace.write(workspace.priya, f"{workspace.mention} why?")
    await workspace.fake.until(lambda: workspace.notices(workspace.priya))
    workspace.engine.troubles = []
    await workspace.wait_until_handled()
    assert workspace.notices(workspace.priya) == [full.user_message]
    assert workspace.questions == []


async def test_a_full_queue_is_told_in_a_followed_thread(workspace: Workspace) -> None:
    thread = await workspace.question()
    workspace.engine.troubles = [QueueFull(100)]
    workspace.write(workspace.priya, "and since when?", thread)
    await workspace.fake.until(lambda: workspace.notices(workspace.priya))
    assert workspace.notices(workspace.priya) == [QueueFull(100).user_message]


async def test_a_message_is_stored_when_the_database_is_back(workspace: Workspace) -> None:
    workspace.engine.troubles = [DatabaseUnavailable("The database is away.")]
    workspace.write(workspace.priya, "hello", workspace.fake.dm(workspace.priya))
    await workspace.fake.until(lambda: workspace.engine.received)
    await workspace.wait_until_handled()
    assert workspace.questions == ["hello"]


@pytest.mark.parametrize("followed", [False, True])
async def test_a_full_disk_is_told_once_and_the_message_is_stored_later(workspace: Workspace, followed: bool) -> None:
    thread = await workspace.question() if followed else None
    workspace.engine.troubles = [DISK_FULL, DISK_FULL, DISK_FULL]
    workspace.write(workspace.priya, "since when?" if followed else f"{workspace.mention} since when?", thread)
    await workspace.fake.until(lambda: "since when?" in workspace.questions)
    await workspace.fake.until(lambda: workspace.notices(workspace.priya))
    await workspace.wait_until_handled()
    assert workspace.questions.count("since when?") == 1
    assert workspace.notices(workspace.priya) == [NOT_STORED]


async def test_a_mention_without_words_gets_a_hint(workspace: Workspace) -> None:
    workspace.write(workspace.priya, workspace.mention)
    await workspace.fake.until(lambda: NOTHING_SAID in hints(workspace))
    await workspace.wait_until_handled()
    assert hints(workspace) == [NOTHING_SAID]
    assert workspace.questions == []


def hints(workspace: Workspace) -> list[str]:
    """Return the notices to Priya and the replies below her message."""
    posted = [message.native.content for message in workspace.public_messages(workspace.channel)]
    return [*workspace.notices(workspace.priya), *posted]


async def test_a_command_in_a_message_is_run_once(workspace: Workspace) -> None:
    commands = workspace.bot.commands
    workspace.write(workspace.priya, f"{workspace.mention} mcp list")
    await workspace.fake.until(lambda: commands.requests)
    await workspace.wait_until_handled()
    (request,) = commands.requests
    assert (request.command, request.words) == ("mcp", ("list",))
    assert request.conversation.channel == workspace.channel.id
    assert request.member.author.principal == f"{workspace.platform}:{workspace.priya.id}"
    assert workspace.questions == []
