"""One deployment in several workspaces: browser installation, isolation and removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time

import pytest
from aiohttp import web

from bot.chat.context import Lookups
from bot.chat.delivery import NoticeOwner
from bot.chat.home_message import Home
from bot.chat.listener_leases import ListenerLease
from bot.chat.message_model import Heading, Message
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.installations import (
    INSTALL_SECONDS,
    InstallCancelled,
    InstallCompleted,
    InstallExpired,
    InstallFailed,
    InstallRejected,
    InstallStarted,
)
from bot.domain.turns import TurnStatus
from bot.errors import DeliveryFailed
from bot.platforms.slack import workspaces
from bot.platforms.slack.app import open_slack
from bot.platforms.slack.listener import SlackListener, read_ids
from bot.platforms.slack.workspaces import AppCredentials
from tests.fakes.slack import Answers, Fails, Team
from tests.platforms import sample_views
from tests.platforms.fake_engine import SharedLeases
from tests.platforms.slack.installed_app import ACME, GLOBEX, InstalledApp, an_installed_app

BOTH = (ACME.id, GLOBEX.id)


async def begun(place: InstalledApp) -> tuple[str, str]:
    """Return the redirect URL after Ana's consent, and its secret."""
    started = place.installer.start("")
    assert isinstance(started, InstallStarted)
    return place.slack.oauth.consent(started.url, place.ana), started.browser_secret


async def test_two_workspaces_are_installed_in_a_browser_and_served_apart(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH) as place:
        for user, team in ((place.ana, ACME), (place.ben, GLOBEX)):
            result = await place.install(user)
            assert isinstance(result, InstallCompleted)
            assert (result.installation.workspace, result.installation.name) == (team.id, team.name)
            assert result.installation.installed_by == f"slack:{user.id}"
            assert result.url == f"https://slack.com/app_redirect?app={place.slack.app.id}&team={team.id}"
        place.ask(place.ana, "from acme")
        place.ask(place.ben, "from globex")
        await place.hears("from acme", "from globex")
        assert place.heard() == {(ACME.id, "from acme"), (GLOBEX.id, "from globex")}
        # Slash commands and their replies stay in their workspace, although both users have the same id.
        for user in (place.ana, place.ben):
            await place.slack.command(user, "/mcp", "list", place.rooms[user.team.id])
        await place.slack.until(lambda: len(place.commands.requests) == 2)
        assert {request.conversation.workspace for request in place.commands.requests} == {*BOTH}
        assert not place.slack.calls.failed_calls()


async def test_posts_use_the_token_of_their_workspace(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        for user in (place.ana, place.ben):
            room = place.rooms[user.team.id]
            root = place.slack.say(user, room, "hi")
            where = ConversationKey("slack", user.team.id, room.id, root.ts)
            view = sample_views.a_view(sample_views.a_reply(1, "Done."), status=TurnStatus.DONE)
            async for _ in place.app.surface.deliver(sample_views.at(view, where), {}):
                pass
            assert place.slack.bot_messages(room)
            member = await place.app.surface.member(Author("slack", user.id, ""), where)
            assert (member.author.name, member.platform_admin) == (user.name.lower(), user is place.ana)
            assert f"slack:{user.team.id}:{user.id}" in member.roles
        accounts = {workspace.api.pacing._account for workspace in place.app.workspaces.known()}
        assert len(accounts) == 2, "each workspace has rate limits of its own"


async def test_one_workspace_is_removed_and_the_other_goes_on(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        place.ask(place.ben, "still here")
        await place.hears("still here")
        place.slack.uninstall(ACME)
        await place.slack.until(lambda: len(place.app.workspaces.known()) == 1)
        row = await place.store.find("slack", ACME.id)
        assert row is not None
        assert (row.token, row.refresh_token, row.name) == ("", "", "Acme")
        assert row.removed_at is not None
        place.ask(place.ben, "and now")
        await place.hears("and now")
        assert place.listening is not None
        assert not place.listening.done()
        gone = ConversationKey("slack", ACME.id, "C0FIRST01", "1.1")
        with pytest.raises(DeliveryFailed) as failure:
            await place.app.surface.member(Author("slack", place.ana.id, ""), gone)
        assert failure.value.permanent
        # A second installation is allowed.
        assert isinstance(await place.install(place.ana), InstallCompleted)
        place.ask(place.ana, "back again")
        await place.hears("back again")


async def test_a_token_that_was_revoked_without_an_event_removes_its_workspace_alone(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        place.ask(place.ana, "first")
        await place.hears("first")
        place.slack.app.installations[ACME.id].earlier[place.slack.app.installations[ACME.id].token] = None
        place.slack.app.installations[ACME.id].revoked = True
        place.slack.world.emit(
            place.slack.world.workspaces[ACME.id], "tokens_revoked", {"type": "tokens_revoked", "tokens": {"bot": []}}
        )
        await place.slack.until(lambda: len(place.app.workspaces.known()) == 1)
        place.ask(place.ben, "second")
        await place.hears("second")


async def test_an_event_about_another_token_of_the_app_removes_nothing(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH) as place:
        await place.install(place.ana)
        place.ask(place.ana, "first")
        await place.hears("first")
        place.slack.tell("tokens_revoked", {"type": "tokens_revoked", "tokens": {"oauth": ["U0SOMEBODY"]}})
        await place.slack.until(lambda: len(place.slack.calls.of("auth.test")) > 1)
        place.ask(place.ana, "second")
        await place.hears("second")


async def test_the_token_of_the_settings_and_installations_go_the_same_way(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, GLOBEX.id, own=True) as place:
        await place.install(place.ben)
        place.ask(place.ana, "own")
        place.ask(place.ben, "installed")
        await place.hears("own", "installed")
        assert place.heard() == {(ACME.id, "own"), (GLOBEX.id, "installed")}
        # An installation in this workspace returns the same token, and must not revoke it.
        result = await place.install(place.ana)
        assert isinstance(result, InstallRejected)
        assert "served already" in result.cause
        place.slack.uninstall(ACME)
        await place.slack.until(lambda: len(place.app.workspaces.known()) == 1)
        place.ask(place.ben, "goes on")
        await place.hears("goes on")
        assert place.listening is not None
        assert not place.listening.done()


async def test_no_workspace_may_install_it_before_the_operator_has_named_one(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, listening=False) as place:
        result = place.installer.start("")
        assert isinstance(result, InstallRejected)
        assert "SLACK_WORKSPACES" in result.fix
        assert not place.slack.calls


async def test_a_workspace_that_the_operator_has_not_named_is_refused_and_its_token_given_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with an_installed_app(tmp_path, ACME.id) as place:
        assert isinstance(place.installer.start(GLOBEX.id), InstallRejected)
        result = await place.install(place.ben)
        assert isinstance(result, InstallRejected)
        assert result == InstallRejected(
            "This bot does not serve Globex (T0GLOBEX).",
            "Ask whoever operates it to add T0GLOBEX to SLACK_WORKSPACES.",
        )
        assert place.slack.app.installations[GLOBEX.id].revoked
        assert await place.store.versions("slack") == {}
        assert "installation in slack:T0GLOBEX refused" in caplog.text


async def test_an_installation_that_is_named_no_more_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        async with open_slack(url=place.slack.url, allowed=frozenset({ACME.id})) as later:
            credentials = AppCredentials(place.slack.app.client_id, place.slack.app.client_secret)
            later.use_installations(place.store, credentials, SharedLeases())
            assert await later.workspaces.find(ACME.id) is not None
            assert await later.workspaces.find(GLOBEX.id) is None
            with pytest.raises(DeliveryFailed) as failure:
                await later.workspaces.of(ConversationKey("slack", GLOBEX.id, "C1", ""))
            assert not failure.value.permanent, "the operator may name it again"
    assert "T0GLOBEX cannot be served: it is not in SLACK_WORKSPACES" in caplog.text


async def test_the_answer_counts_once_and_in_the_browser_that_began(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        back, secret = await begun(place)
        for other in ("", "another browser's"):
            assert isinstance(await place.come_back(back, other), InstallExpired)
        results = await asyncio.gather(*(place.come_back(back, secret) for _ in range(3)))
        assert [type(result) for result in results].count(InstallCompleted) == 1
        assert [type(result) for result in results].count(InstallExpired) == 2
        assert len(place.slack.calls.of("oauth.v2.access")) == 1


async def test_a_state_that_was_forged_or_is_too_old_counts_for_nothing(tmp_path: Path) -> None:
    now = [time()]
    async with an_installed_app(tmp_path, *BOTH, clock=lambda: now[0], listening=False) as place:
        back, secret = await begun(place)
        state = back.rpartition("state=")[2]
        nonce, end, signature = state.split(".")
        forged = [f"{nonce}.{int(end) + 600}.{signature}", f"x{state}", f"{nonce}.{signature}", "", "..", "💡", "a.9.b"]
        for wrong in forged:
            assert isinstance(await place.installer.finish({"code": "code.1", "state": wrong}, secret), InstallExpired)
        assert isinstance(await place.installer.finish({"state": state}, secret), InstallExpired)
        now[0] += INSTALL_SECONDS
        assert isinstance(await place.come_back(back, secret), InstallExpired)
        assert not place.slack.calls.of("oauth.v2.access")


async def test_a_cancelled_installation_changes_nothing(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        assert isinstance(await place.install(place.ana, allow=False), InstallCancelled)
        assert await place.store.versions("slack") == {}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fails("bad_client_secret"), "Slack does not accept this bot as the app."),
        (Fails("invalid_code"), "Slack rejected the installation."),
        (Answers(503), "Slack does not answer."),
    ],
)
async def test_an_installation_that_fails_says_why_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Fails | Answers, cause: str
) -> None:
    caplog.set_level(logging.DEBUG)
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        place.slack.fail("oauth.v2.access", fault)
        result = await place.install(place.ana)
        assert isinstance(result, InstallFailed)
        assert result.cause == cause
        assert await place.store.versions("slack") == {}
        secret = place.slack.app.client_secret
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("bot."))
    assert secret not in ours
    assert "code.1" not in ours


async def test_a_token_is_renewed_before_it_expires_by_one_process(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, rotation=True) as place:
        result = await place.install(place.ana)
        assert isinstance(result, InstallCompleted)
        first = result.installation
        assert first.token.startswith("xoxe.xoxb-")
        soon = await place.store.renew(replace(first, expires_at=time() + 3600))
        assert soon is not None
        await asyncio.gather(*(place.app.workspaces.installed.refresh() for _ in range(3)))  # type: ignore[union-attr]
        await place.slack.until(lambda: place.slack.calls.of("oauth.v2.access")[1:])
        renewed = await place.store.find("slack", ACME.id)
        assert renewed is not None
        assert renewed.token not in ("", first.token)
        assert renewed.refresh_token not in ("", first.refresh_token)
        assert renewed.expires_at is not None
        assert renewed.expires_at > time() + 40_000
        place.ask(place.ana, "with the next token")
        await place.hears("with the next token")
        assert len(place.slack.calls.of("oauth.v2.access")) == 2
        assert not place.slack.calls.failed_calls()


async def test_a_call_with_an_expired_token_is_made_again_with_the_next_one(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, rotation=True, listening=False) as place:
        await place.install(place.ana)
        workspace = await place.app.workspaces.find(ACME.id)
        assert workspace is not None
        await workspace.api.identity()
        row = await place.store.find("slack", ACME.id)
        assert row is not None
        # The process slept: the token has expired, and no other process has renewed it.
        place.slack.app.installations[ACME.id].expires_at = place.slack.clock.now()
        await place.store.renew(replace(row, expires_at=time() - 1))
        assert await workspace.api.read("users.info", user=place.ana.id)
        assert len(place.slack.calls.of("oauth.v2.access")) == 2


async def test_a_refresh_token_that_slack_rejects_is_reported_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "POLL_SECONDS", 0.2)
    async with an_installed_app(tmp_path, *BOTH, rotation=True) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        row = await place.store.find("slack", ACME.id)
        assert row is not None
        await place.store.renew(replace(row, refresh_token="xoxe-1-unknown", expires_at=time() + 60))
        await place.slack.until(lambda: "its token was not renewed" in caplog.text, 20)
        assert caplog.text.count("its token was not renewed") == 1
        installed = place.app.workspaces.installed
        assert installed is not None
        assert installed.failing() == [ACME.id], "operators are told"
        assert "xoxe-1-unknown" not in caplog.text
        place.ask(place.ben, "goes on")
        await place.hears("goes on")
        await place.install(place.ana)
        assert installed.failing() == []


@asynccontextmanager
async def an_organization(folder: Path) -> AsyncIterator[InstalledApp]:
    """The app with an installation for an organization of two workspaces."""
    one, two = Team(enterprise="E0ORG"), Team("T0GLOBEX", "Globex", "globex", enterprise="E0ORG")
    async with an_installed_app(folder, "E0ORG", teams=(one, two)) as place:
        place.slack.app.events.add("team_access_revoked")
        # User ids are unique in an organization.
        place.ben.id = "U0OTHER01"
        place.slack.world.workspaces[two.id].users = {place.ben.id: place.ben}
        place.rooms[two.id].members.append(place.ben.id)
        assert isinstance(await place.install(place.ana, organization="E0ORG"), InstallCompleted)
        yield place


async def test_an_organization_has_one_token_and_each_of_its_workspaces_is_apart(tmp_path: Path) -> None:
    async with an_organization(tmp_path) as place:
        one, two = place.ana.team, place.ben.team
        row = await place.store.find("slack", "E0ORG")
        assert row is not None
        assert row.is_organization
        # The workspaces are known before the first event, because a process without a listener posts, too.
        assert {await _team(workspace) for workspace in place.app.workspaces.known()} == {one.id, two.id}
        place.ask(place.ana, "from one")
        place.ask(place.ben, "from two")
        await place.hears("from one", "from two")
        assert place.heard() == {(one.id, "from one"), (two.id, "from two")}
        group = place.slack.group("ops", place.ana)
        first = await place.app.workspaces.find(one.id)
        assert first is not None
        assert await first.people.group_name(group.id) == "ops"
        assert place.slack.calls.of("usergroups.list")[-1].args["team_id"] == one.id
        member = await first.people.member(place.ana.id)
        assert {f"slack:{where}:{place.ana.id}" for where in (one.id, "E0ORG")} <= member.roles
        typed = await place.slack.command(place.ben, "/mcp", "list", place.rooms[two.id])
        assert typed.is_acknowledged
        await place.slack.until(lambda: place.commands.requests)
        assert place.commands.requests[-1].conversation.workspace == two.id


async def test_a_workspace_that_an_organization_takes_from_the_app_is_left_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with an_organization(tmp_path) as place:
        place.ask(place.ana, "from one")
        place.ask(place.ben, "from two")
        await place.hears("from one", "from two")
        place.slack.revoke_access(place.ben.team)
        await place.slack.until(lambda: len(place.app.workspaces.known()) == 1)
        assert "the app was removed from Slack workspace T0GLOBEX of E0ORG Inc. (E0ORG)" in caplog.text
        gone = ConversationKey("slack", GLOBEX.id, "C0OTHER01", "1.1")
        with pytest.raises(DeliveryFailed, match="not installed") as failure:
            await place.app.surface.member(Author("slack", place.ben.id, ""), gone)
        assert failure.value.permanent
        # The token stays, because the other workspaces share it.
        row = await place.store.find("slack", "E0ORG")
        assert row is not None
        assert row.token
        place.ask(place.ana, "still here")
        await place.hears("still here")
        assert place.listening is not None
        assert not place.listening.done()
        # After a new approval, the events of the workspace add it again.
        place.slack.app.installations[GLOBEX.id].access_revoked = False
        place.ask(place.ben, "back again")
        await place.hears("back again")


async def test_an_event_about_access_that_was_given_back_meanwhile_removes_nothing(tmp_path: Path) -> None:
    async with an_organization(tmp_path) as place:
        place.ask(place.ben, "first")
        await place.hears("first")
        place.slack.tell("team_access_revoked", {"type": "team_access_revoked", "team_ids": [GLOBEX.id]})
        await place.slack.until(lambda: len(place.slack.calls.of("auth.teams.list")) > 1)
        place.ask(place.ben, "second")
        await place.hears("second")
        assert len(place.app.workspaces.known()) == 2


async def _team(workspace: object) -> str:
    return str((await workspace.api.identity()).team)  # type: ignore[attr-defined]


async def test_a_mention_in_a_shared_channel_is_for_the_workspace_whose_bot_is_mentioned(tmp_path: Path) -> None:
    """Slack sends one event for both workspaces, in the name of one workspace."""
    async with an_installed_app(tmp_path, *BOTH) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        place.ask(place.ben, "known by now")
        await place.hears("known by now")
        shared = place.rooms[ACME.id]
        shared.ext_shared = True
        place.slack.say(place.ana, shared, f"{place.slack.app.installations[GLOBEX.id].bot.mention} across")
        await place.hears("across")
        assert (GLOBEX.id, "across") in place.heard()
        assert (ACME.id, "across") not in place.heard()


async def test_a_workspace_that_is_not_served_gets_a_sentence_for_a_command_and_nothing_else(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, ACME.id) as place:
        await place.install(place.ana)
        # Another deployment has installed the app, with its own token.
        place.slack.app.installations[GLOBEX.id].revoked = False
        place.ask(place.ben, "hello")
        typed = await place.slack.command(place.ben, "/mcp", "list", place.rooms[GLOBEX.id])
        assert "not set up for your workspace" in str(typed.answer)
        place.ask(place.ana, "hi")
        await place.hears("hi")
        assert place.heard() == {(ACME.id, "hi")}
        assert not place.commands.requests
        await place.slack.post.idle()
        assert all(delivery.is_acknowledged for delivery in place.slack.sent_deliveries)


async def test_another_process_follows_installations_and_removals_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without a listener gets no events."""
    monkeypatch.setattr(workspaces, "POLL_SECONDS", 0.2)
    async with (
        an_installed_app(tmp_path, *BOTH) as place,
        open_slack(url=place.slack.url, allowed=frozenset(BOTH)) as worker,
    ):
        credentials = AppCredentials(place.slack.app.client_id, place.slack.app.client_secret)
        worker.use_installations(place.store, credentials, SharedLeases())
        acme = ConversationKey("slack", ACME.id, place.rooms[ACME.id].id, "")
        with pytest.raises(DeliveryFailed, match="not installed in that Slack workspace"):
            await worker.workspaces.of(acme)
        await place.install(place.ana)
        assert (await worker.workspaces.of(acme)).installation == ACME.id
        place.ask(place.ana, "hi")
        await place.hears("hi")
        place.slack.uninstall(ACME)
        await place.slack.until(lambda: not worker.workspaces.known(), 20)
        with pytest.raises(DeliveryFailed) as failure:
            await worker.workspaces.of(acme)
        assert failure.value.permanent


async def test_an_app_removed_during_a_downtime_is_forgotten_at_the_next_start(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        place.slack.app.installations[ACME.id].revoked = True
        listener = SlackListener(place.app.workspaces, place.app.factory.app_api, app_token=place.slack.app.app_token)
        listening = asyncio.create_task(listener.run(place.engine, place.commands))
        await place.slack.until(lambda: len(place.app.workspaces.known()) == 1, 20)
        row = await place.store.find("slack", ACME.id)
        assert row is not None
        assert row.removed_at is not None
        place.ask(place.ben, "goes on")
        await place.hears("goes on")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_events_over_http_are_told_apart_too(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        listener = SlackListener(
            place.app.workspaces, place.app.factory.app_api, signing_secret=place.slack.app.signing_secret
        )
        hook = listener.hook
        assert hook is not None

        async def events(request: web.Request) -> web.Response:
            answer = await hook.respond(request.headers, await request.read())
            return web.Response(status=answer.status, headers=answer.headers, text=answer.body)

        application = web.Application()
        application.router.add_post(hook.path, events)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        posts = place.slack.deliver_by_http(f"http://127.0.0.1:{runner.addresses[0][1]}{hook.path}")
        listening = asyncio.create_task(listener.run(place.engine, place.commands))
        await place.slack.until(lambda: hook.ready)
        assert (await posts.verify(place.slack.app.verification_token))["status"] == 200
        place.ask(place.ana, "from acme")
        place.ask(place.ben, "from globex")
        await place.hears("from acme", "from globex")
        assert place.heard() == {(ACME.id, "from acme"), (GLOBEX.id, "from globex")}
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await runner.cleanup()


def test_a_button_in_a_shared_channel_belongs_to_the_workspace_whose_bot_posted_it() -> None:
    message = {"team": ACME.id, "user": "U0BOT0001", "bot_id": "B1"}
    pressed = {"type": "block_actions", "message": message, "team": {"id": GLOBEX.id}, "user": {"team_id": GLOBEX.id}}
    assert read_ids(pressed, {"team_id": GLOBEX.id})[0] == (ACME.id, GLOBEX.id)
    # Authors of other messages may belong to any workspace.
    shortcut = {**pressed, "type": "message_action"}
    assert read_ids(shortcut, {"team_id": GLOBEX.id})[0] == (GLOBEX.id, ACME.id)


def test_an_event_for_an_organization_is_of_the_workspace_where_it_happened() -> None:
    authorizations = [{"enterprise_id": "E0ORG", "team_id": None, "is_enterprise_install": True}]
    event = {"authorizations": authorizations, "team_id": "T9", "context_team_id": "T1", "event": {"type": "message"}}
    context = {"enterprise_id": "E0ORG", "is_enterprise_install": True}
    assert read_ids(event, context) == (("T1", "T9"), "E0ORG")
    # In a shared channel the event names the sender's workspace. The installation's workspace goes first.
    event = {"authorizations": [{"team_id": "T1"}], "team_id": "T9", "event": {"type": "message"}}
    assert read_ids(event, {"team_id": "T1", "enterprise_id": "E0ORG"}) == (("T1", "T9"), "")


async def test_posts_of_the_bot_itself_go_to_the_workspace_of_their_channel(tmp_path: Path) -> None:
    """The operations channel is in one of the workspaces."""
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        channels, message = place.app.surface, Message("fault", (Heading("The disk is full"),))
        room = place.rooms[GLOBEX.id]
        owner = NoticeOwner("fault:1", ConversationKey("slack", GLOBEX.id, room.id, ""), time())
        ref = await channels.show_in_channel(owner, message, "")
        assert [posted.ts for posted in place.slack.bot_messages(room)] == [ref.partition(":")[2]]
        assert place.slack.bot_messages(place.rooms[ACME.id]) == []


async def test_each_home_is_built_for_its_workspace(tmp_path: Path) -> None:
    opened: list[tuple[str, str]] = []

    async def home(member: Member, workspace: str) -> Home:
        opened.append((member.author.name, workspace))
        return Home(0.0)

    async with an_installed_app(tmp_path, *BOTH, records=Lookups(build_home=home)) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        for user in (place.ana, place.ben):
            place.slack.open_home(user)
            await place.slack.until(partial(place.slack.home, user))
        assert opened == [("ana", f"slack:{ACME.id}"), ("ben", f"slack:{GLOBEX.id}")]


async def test_a_file_is_fetched_from_the_workspace_where_it_was_shared(tmp_path: Path) -> None:
    async with an_installed_app(tmp_path, *BOTH) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        for user, data in ((place.ana, b"of acme"), (place.ben, b"of globex")):
            bot = place.slack.app.installations[user.team.id].bot
            files = [("notes.txt", data)]
            place.slack.say(user, place.rooms[user.team.id], f"{bot.mention} read this", files=files)
        await place.slack.until(lambda: len(place.engine.received) == 2)
        contents = {
            message.conversation.workspace: await place.app.surface.fetch(message.attachments[0])
            for message in place.engine.received
        }
        assert contents == {ACME.id: b"of acme", GLOBEX.id: b"of globex"}


async def test_missed_messages_of_a_workspace_are_read_after_a_disconnection(tmp_path: Path) -> None:
    known: list[ConversationKey] = []

    async def active_keys(prefix: str, _seconds: float, _limit: int) -> list[ConversationKey]:
        return [key for key in known if str(key).startswith(prefix)]

    records = Lookups(active_conversations=active_keys)
    async with an_installed_app(tmp_path, *BOTH, listening=False) as place:
        await place.install(place.ana)
        await place.install(place.ben)
        for user in (place.ana, place.ben):
            known.append(ConversationKey("slack", user.team.id, place.rooms[user.team.id].id, "1.1"))
            place.ask(user, f"missed in {user.team.name}")
        leases = SharedLeases()
        listener = SlackListener(
            place.app.workspaces,
            place.app.factory.app_api,
            app_token=place.slack.app.app_token,
            records=records,
            backfill_lease=lambda name: ListenerLease(leases, name, "one", "backfill"),
        )
        listening = asyncio.create_task(listener.run(place.engine, place.commands))
        await place.hears("missed in Acme", "missed in Globex")
        assert place.heard() == {(ACME.id, "missed in Acme"), (GLOBEX.id, "missed in Globex")}
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
