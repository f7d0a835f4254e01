"""Discord in the test's own event loop, over real sockets, strict where Discord is strict.

    async with FakeDiscord() as discord:
        ana, sam = discord.user("Ana"), discord.user("Sam", admin=True)
        incidents = discord.channel("incidents")
        ...                                  # the app under test: discord.url, discord.token
        await discord.gateway.wait_for_connections()
        asked = discord.say(ana, incidents, f"{discord.bot.mention} why 502?")
        await discord.until(lambda: asked.thread and discord.bot_messages(asked.thread))
        card = discord.bot_messages(asked.thread)[-1]
        pressed = await discord.press(sam, card, "Approve")
        assert "Created" in discord.what_user_sees(ana, asked.thread)[-1].words

Point discord.py at the fake by `Route.BASE = discord.url`. GET /gateway returns the gateway's address, which is also
`discord.world.gateway_url`. Ids are strings of digits.

**Users and channels**: `guild` is the first server, `another_guild` adds one. `user(name, *roles)` (`admin`, `owner`,
`pending`, `stranger`), `role(name, *members)` (`permissions`, `mentionable`), `other_bot`, `webhook`, `channel(name,
*only)` (`kind`, `with_bot`), `dm`, `private` (between users only), `thread`, `bot_role`. Permissions are bits: set
`discord.guild.everyone.permissions &= ~Permission.CREATE_PUBLIC_THREADS`, or `channel.forbid(discord.bot,
Permission.SEND_MESSAGES)` and `channel.permit`. Later: `join`, `leave`, `give`, `take`, `time_out`, `invite`, `expel`.

**The app**: `app.message_content`, `app.guild_members`, `app.presences` are the portal's switches. Without the first,
content is empty in events and in responses of REST. With `app.user_install`, `install(user)` installs the app for a
user, and the app answers by the interaction only. `app.commands['']` are its commands.

**Actions of users**: `say` (`files`, `reply_to`, `ping`), `reply`, `again` (delivers twice), `edit`, `delete`,
`unfurl`, `react`, `thread`, `post` (in a forum), `archive`, `remove`, `type`, `reload` return at once. `press`,
`choose`, `command`, `shortcut` (context menu), `submit` wait for the first answer, three seconds at most, and return
the `Interaction` (`answered`, `failed`, `messages`, `text`, `modal`); `suggest` returns the choices.

**Visible state**: `what_user_sees(user, channel)` (`words`, `buttons`, `ephemeral`, `thinking`, `pings`, `previews`,
…), `bot_messages(channel)`, `threads(channel)`, `modal(user)`, `typing(channel)`, `called(message)` (the notified
users), `fetched_addresses(message)`, `message.past`, `calls` (`calls.of("PATCH
/channels/{channel}/messages/{message}")`, `calls.failed_calls()`, `calls.invalid()`), `interactions`,
`gateway.identify_count`, `gateway.live[0].intents`, `.shard`, `until(condition)`.

**Errors**: `fail(route, Fails(50013) | Answers(502) | TooMany(0.2) | Hangs() | Cut() | Lost() | Slow(1.0), times)`;
`gateway.ask_to_reconnect()` (op 7), `gateway.invalidate(resumable=…)` (op 9), `gateway.drop()` breaks connections,
`gateway.close(4000)`, `gateway.connections[0].muted = True` sends nothing more to the app, `gateway.forget_sessions()`
fails the next RESUME, `gateway.refuses = True`; `go_down()` and `come_back()`.

**Time**: `clock.advance(900)` expires tokens of interactions; `clock.stop()`. Buckets count by the same clock, but
discord.py waits in real time: `pace.strict = False` lifts them, `pace.per_bucket[route] = (calls, seconds)` changes
one. `limits` holds lifetimes and sizes. When the fake closes, it raises its own errors, and an
AssertionError if the app has sent unknown requests (`unknown`).

Observed, not documented: the sizes of buckets, the number of edits of old messages that pass (others are refused with
429, which discord.py retries), the time in which a session can be resumed. Stricter than Discord: unknown fields,
parameters and flags are refused, and an edit without `allowed_mentions` notifies. Not simulated: private threads by the
app, posts in forums by the app, audio in voice channels, stickers, polls.
"""

from tests.fakes.discord.discord import FakeDiscord
from tests.fakes.discord.faults import Answers, Cut, Fails, Hangs, Lost, Slow, TooMany
from tests.fakes.discord.interactions import Answer, Asked, Interaction, Modal
from tests.fakes.discord.messages import Flag, Message
from tests.fakes.discord.people import Member, Role, User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import Channel, Guild, Kind
from tests.fakes.discord.visible_state import VisibleState

__all__ = [
    "Answer",
    "Answers",
    "Asked",
    "Channel",
    "Cut",
    "Fails",
    "FakeDiscord",
    "Flag",
    "Guild",
    "Hangs",
    "Interaction",
    "Kind",
    "Lost",
    "Member",
    "Message",
    "Modal",
    "Permission",
    "Role",
    "Slow",
    "TooMany",
    "User",
    "VisibleState",
]
