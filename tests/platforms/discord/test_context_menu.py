"""*Ask about this* in the context menu of a message."""

from __future__ import annotations

from bot.engine.prompt.messages import UNREAD
from bot.platforms.discord.app_commands import ASK_ABOUT_THIS
from tests.fakes.discord import Permission
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


async def wait_for_menu_entry(place: ConnectedBot) -> None:
    """Wait until the menu entry is registered."""
    await place.discord.until(
        lambda: any(each["name"] == ASK_ABOUT_THIS for each in place.discord.app.commands.get("", []))
    )


async def test_the_entry_is_in_the_language_of_each_client(place: ConnectedBot) -> None:
    await wait_for_menu_entry(place)
    (entry,) = [each for each in place.discord.app.commands[""] if each["name"] == ASK_ABOUT_THIS]
    assert entry["name_localizations"] == {"ja": "これについて質問"}


async def test_in_a_thread_it_is_asked_there(place: ConnectedBot) -> None:
    discord = place.discord
    await wait_for_menu_entry(place)
    thread = discord.thread(place.priya, place.channel, "checkout")
    said = discord.say(discord.user("Sam"), thread, "checkout is broken")
    await discord.shortcut(place.priya, ASK_ABOUT_THIS, said)
    await discord.submit(place.priya, {"question": "since when?"})
    await place.wait_for_messages(1)
    assert place.engine.received[0].conversation == place.key(place.channel, thread.id)


async def test_without_the_right_to_open_threads_it_is_asked_in_the_channel(worker: ConnectedBot) -> None:
    discord = worker.discord
    worker.channel.forbid(discord.bot, Permission.CREATE_PUBLIC_THREADS)
    async with worker.running():
        await wait_for_menu_entry(worker)
        said = discord.say(discord.user("Sam"), worker.channel, "checkout is broken")
        await discord.shortcut(worker.priya, ASK_ABOUT_THIS, said)
        await discord.submit(worker.priya, {"question": "since when?"})
        await worker.wait_for_messages(1)
        assert worker.engine.received[0].conversation == worker.key(worker.channel)
        assert len(worker.public_messages()) == 1


async def test_a_process_that_did_not_open_the_modal_reads_the_message_again(place: ConnectedBot) -> None:
    discord = place.discord
    await wait_for_menu_entry(place)
    said = discord.say(discord.user("Sam"), place.channel, "checkout is broken")
    await discord.shortcut(place.priya, ASK_ABOUT_THIS, said)
    await place.stop()
    async with place.running("two"):
        await discord.submit(place.priya, {"question": "since when?"})
        await place.wait_for_messages(1)
        assert place.engine.received[0].context == ("Sam: checkout is broken",)


async def test_a_message_that_cannot_be_read_any_more_is_reported() -> None:
    async with connected_bot(message_content=False) as place:
        discord = place.discord
        await wait_for_menu_entry(place)
        said = discord.say(discord.user("Sam"), place.channel, "checkout is broken")
        await discord.shortcut(place.priya, ASK_ABOUT_THIS, said)
        await place.stop()
        async with place.running("two"):
            await discord.submit(place.priya, {"question": "since when?"})
            await place.wait_for_messages(1)
            assert place.engine.received[0].context == (UNREAD,)
