"""A Slack workspace in the test's own event loop, over real sockets, strict where Slack is strict.

    async with FakeSlack() as slack:
        priya, sam = slack.user("Priya"), slack.user("Sam", admin=True)
        incidents = slack.channel("incidents", priya, sam)
        ...                                  # the app under test: slack.url, slack.bot_token, slack.app.app_token
        await slack.sockets.connected()      # or slack.deliver_by_http("http://127.0.0.1:…/slack/events")
        asked = slack.say(priya, incidents, f"{slack.bot.mention} why 502?")
        await slack.until(lambda: slack.bot_messages(incidents, asked.ts))
        card = slack.bot_messages(incidents, asked.ts)[-1]
        await slack.press(sam, card, "Create Issue")
        assert "Created" in slack.what_user_sees(priya, incidents)[-1].words

The app has the scopes, events, commands and shortcuts of `config/slack_manifest.yaml`. Change them by
`FakeSlack(manifest=Manifest(...))` or by `installation.scopes`, `app.events`, ….

**Users and channels**: `user` (`admin`, `owner`, `guest='multi'|'single'`, `stranger` with a `team`), `other_bot`,
`group`, `channel` (`kind='channel'|'group'|'im'|'mpim'`, `ext_shared`, `with_bot`), `dm`, `install` for a second
workspace, `prepare` for one without the app. All are plain values, which a test may change (`group.users.remove(...)`,
`channel.archived = True`).

**Actions of users**: `say`, `edit`, `delete`, `unfurl`, `join`, `react`, `reload`, `open_home`, `stop`, `tell` return
at once. `press`, `choose`, `suggest`, `submit`, `close_modal`, `command`, `shortcut` wait for the acknowledgement,
three seconds at most, and return the `Delivery` (`acknowledged`, `answer`, `attempts[0].seconds`).

**Installing**: `oauth.redirect_uris.add(...)`, then `oauth.consent(address, user)` agrees on Slack's page as the user
and returns the address of the redirect. `organization` installs for all of its workspaces. With `app.rotation`, tokens
expire. `uninstall(team)` removes the app and sends it the events.

**Visible state**: `what_user_sees(user, channel)` (`words`, `ephemeral`, `streaming`, …), `bot_messages(channel,
thread_ts)`, `modal(user)`, `home(user)`, `status(channel, thread_ts)`, `workspace.sessions`, `called(message)` (the
notified users), `fetched_addresses(message)` (the links that Slack would fetch), `message.past` (its states before each
change), `calls` (`calls.of("chat.update")`, `calls.failed_calls()`), `sent_deliveries`, `until(condition)`.

**Errors**: `fail(method, Fails("code") | Answers(500) | TooMany(3) | Hangs() | Cut() | Lost() | Slow(1.0), times)`;
`absent.add("chat.startStream")`; `installation.scopes.discard("chat:write")`; `installation.revoked = True`;
`channel.streams = False`; `go_down()` and `come_back()`; `sockets.disconnect()` announces a refresh, `sockets.drop()`
breaks connections, `sockets.connections[0].muted = True` loses acknowledgements; `post.again(delivery)` delivers once
more, `sockets.choose` chooses the connection; `post.within`, `post.retries` are seconds.

**Time**: `clock.advance(300)` advances by five minutes (streams, triggers, response URLs, rate limits, retries).
`pace.strict = False` lifts the rate limits; `limits` holds lifetimes and sizes; `app.mention_first = False` reverses
the order of a mention's two events. When the workspace closes, it raises errors of the fake itself.

Reported by users of Slack, not documented: the lifetime and size of streams, that other members of a channel see the
first part of a stream until it ends, that the `text` of an update is counted in bytes, and the limit on the size of all
blocks of a message. Stricter than Slack: unknown arguments are refused, and every block counts as much as a header.
"""

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.faults import Answers, Cut, Fails, Hangs, Lost, Slow, TooMany
from tests.fakes.slack.manifest import Manifest
from tests.fakes.slack.messages import Message
from tests.fakes.slack.modals import View
from tests.fakes.slack.people import Team, User, UserGroup
from tests.fakes.slack.places import Channel
from tests.fakes.slack.slack import FakeSlack
from tests.fakes.slack.workspace import Sight

__all__ = [
    "Answers",
    "Channel",
    "Cut",
    "Delivery",
    "Fails",
    "FakeSlack",
    "Hangs",
    "Lost",
    "Manifest",
    "Message",
    "Sight",
    "Slow",
    "Team",
    "TooMany",
    "User",
    "UserGroup",
    "View",
]
