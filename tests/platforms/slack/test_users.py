"""User lookups: fresh for decisions, cached for display, empty rights for unknown users."""

from __future__ import annotations

import asyncio

import pytest

from bot.chat.users import TTL_SECONDS, resolve_mentions
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.locales import Locale
from bot.domain.openid import Identity
from bot.errors import DeliveryFailed
from bot.platforms.slack.users import GROUP_SECONDS, UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.ports.platform import DirectoryEntry
from tests.fakes.slack import Fails, FakeSlack, Slow, Team, TooMany
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot


def groups_of(member: Member) -> set[str]:
    """Return the user groups of a member, without the workspace in their names."""
    return {role for role in member.roles if role.startswith("slack-group:") and role.count(":") == 1}


async def test_rights_are_read_as_slack_gives_them(worker: ConnectedBot) -> None:
    slack = worker.slack
    rights = {
        "admin": slack.user("Ada", admin=True),
        "owner": slack.user("Olga", owner=True),
        "member": slack.user("Mo"),
        "guest": slack.user("Gus", guest="multi", admin=True),
        "single": slack.user("Sue", guest="single"),
        "stranger": slack.user("Stella", team=Team("T0OTHER001", "other"), stranger=True, admin=True),
        "gone": slack.user("Gil", deleted=True, admin=True),
        "bot": slack.other_bot("Alerts"),
    }
    members = {name: await worker.people.member(user.id) for name, user in rights.items()}
    assert {name for name, member in members.items() if member.platform_admin} == {"admin", "owner"}
    assert {name for name, member in members.items() if member.guest} == {"guest", "single"}
    assert {name for name, member in members.items() if member.external} == {"stranger", "gone", "bot"}


async def test_an_unknown_user_is_a_stranger(worker: ConnectedBot) -> None:
    assert (await worker.people.member("U0NOBODY1")).external


async def test_a_right_that_was_taken_away_is_gone_at_the_next_decision(worker: ConnectedBot) -> None:
    ada = worker.slack.user("Ada", admin=True)
    where = ConversationKey("slack", worker.slack.workspace.team.id, worker.channel.id, "1.1")
    author = Author("slack", ada.id, "ada")
    assert (await worker.surface.member(author, where)).platform_admin
    ada.admin = False
    assert not (await worker.surface.member(author, where)).platform_admin


async def test_names_are_asked_for_once_in_five_minutes_however_many_want_them(worker: ConnectedBot) -> None:
    now = [0.0]
    people = UserDirectory(worker.api, clock=lambda: now[0])
    await asyncio.gather(*(people.person(worker.priya.id) for _ in range(10)))
    assert len(worker.slack.calls.of("users.info")) == 1
    now[0] += TTL_SECONDS
    await people.person(worker.priya.id)
    assert len(worker.slack.calls.of("users.info")) == 2


async def test_unnamed_groups_are_not_requested(worker: ConnectedBot) -> None:
    await worker.people.member(worker.priya.id)
    assert not worker.slack.calls.of("usergroups.list")


async def test_groups_are_asked_for_from_the_next_decision_on_after_one_was_named(worker: ConnectedBot) -> None:
    ops, others = worker.slack.group("ops", worker.priya), worker.slack.group("others", worker.priya)
    named: set[str] = set()

    async def by_profiles() -> frozenset[str]:
        return frozenset(named)

    now = [0.0]
    people = UserDirectory(worker.api, clock=lambda: now[0])
    people.also_ask_for(by_profiles)
    assert groups_of(await people.member(worker.priya.id)) == set()
    named |= {f"slack-group:{ops.id}", "slack:U1"}
    assert groups_of(await people.member(worker.priya.id)) == {f"slack-group:{others.id}", f"slack-group:{ops.id}"}
    ops.disabled = True
    now[0] += GROUP_SECONDS
    assert groups_of(await people.member(worker.priya.id)) == {f"slack-group:{others.id}"}


async def test_decisions_of_the_same_seconds_share_one_list_of_groups(worker: ConnectedBot) -> None:
    group, now = worker.slack.group("ops", worker.priya), [0.0]
    people = UserDirectory(worker.api, frozenset({f"slack-group:{group.id}"}), clock=lambda: now[0])
    await asyncio.gather(*(people.member(worker.priya.id) for _ in range(10)))
    for _ in range(25):
        now[0] += 1.5
        assert groups_of(await people.member(worker.priya.id)) == {f"slack-group:{group.id}"}
    assert len(worker.slack.calls.of("usergroups.list")) <= 1 + 25 * 1.5 / GROUP_SECONDS


async def test_a_change_of_a_group_counts_from_its_event_on() -> None:
    async with connected_bot(groups=frozenset({"slack-group:S1"})) as place:
        group, sam = place.slack.group("ops", place.priya), place.slack.user("Sam")
        assert groups_of(await place.people.member(sam.id)) == set()
        place.slack.change_group(group, sam)
        await place.wait_for_responses()
        assert groups_of(await place.people.member(sam.id)) == {f"slack-group:{group.id}"}
        assert groups_of(await place.people.member(place.priya.id)) == set()


async def test_a_decision_waits_for_the_rate_limit_and_is_not_lost(worker: ConnectedBot) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        worker.slack.clock.advance(seconds)

    people = UserDirectory(worker.api, pause=pause)
    worker.slack.fail("users.info", TooMany(60))
    assert not (await people.member(worker.priya.id)).external
    assert waits == [pytest.approx(60, abs=1)]


async def test_a_name_with_its_workspace_or_organization_means_no_user_of_another_one() -> None:
    """Ids are unique in a workspace only."""
    async with FakeSlack(Team(enterprise="E0ORG")) as slack:
        slack.pace.strict = False
        priya, sam = slack.user("Priya"), slack.user("Sam", guest="multi")
        group = slack.group("ops", priya)
        async with WebApi(slack.bot_token, url=slack.url) as api:
            people = UserDirectory(api, frozenset({f"slack-group:{group.id}"}))
            names = {f"slack:T0ACME:{priya.id}", f"slack:E0ORG:{priya.id}"}
            groups = {f"slack-group:{where}{group.id}" for where in ("", "T0ACME:", "E0ORG:")}
            assert (await people.member(priya.id)).roles == names | groups
            for where in ("T0ACME", "E0ORG"):
                entry = await people.find_approver(f"slack:{where}:{priya.id}")
                assert entry == DirectoryEntry("priya", frozenset({f"slack:{priya.id}"}))
                entry = await people.find_approver(f"slack-group:{where}:{group.id}")
                assert entry == DirectoryEntry("ops", frozenset({f"slack:{priya.id}"}))
                assert await people.name_of(f"slack:{where}:{priya.id}") == "priya"
            assert await people.find_approver(f"slack:{priya.id}") == DirectoryEntry("priya")
            assert await people.find_approver(f"slack:T0OTHER:{priya.id}") is None
            assert await people.find_approver(f"slack-group:T0OTHER:{group.id}") is None
            assert await people.find_approver(f"slack:T0ACME:{sam.id}") is None
            assert await people.name_of(f"slack:T0OTHER:{priya.id}") == ""
            sentence = f"It needs slack:T0ACME:{priya.id} or slack-group:{group.id} or slack:T0OTHER:U1."
            assert await resolve_mentions(people.names, sentence) == "It needs @priya or @ops or slack:T0OTHER:U1."


async def test_external_users_have_no_groups_of_slack(worker: ConnectedBot) -> None:
    stella = worker.slack.user("Stella", team=Team("T0OTHER001", "other"), stranger=True)
    group = worker.slack.group("ops", stella)
    people = UserDirectory(worker.api, frozenset({f"slack-group:{group.id}"}))
    assert (await people.member(stella.id)).roles == frozenset()


async def test_without_an_answer_of_slack_no_user_is_taken_for_a_member(worker: ConnectedBot) -> None:
    worker.slack.fail("users.info", Fails("internal_error"))
    with pytest.raises(DeliveryFailed):
        await worker.people.member(worker.priya.id)


async def test_people_of_other_platforms_have_no_rights_here(worker: ConnectedBot) -> None:
    where = ConversationKey("console", "local", "ana", "c1")
    member = await worker.surface.member(Author("console", "ana", "ana"), where)
    assert member.external
    assert not worker.slack.calls


async def test_languages_and_time_zones_are_those_of_the_accounts(worker: ConnectedBot) -> None:
    worker.priya.locale, worker.priya.time_zone = "ja-JP", "Asia/Tokyo"
    member = await worker.people.member(worker.priya.id)
    assert (member.language, member.time_zone) == ("ja-JP", "Asia/Tokyo")
    worker.priya.locale, worker.priya.time_zone = "", "Mars/Base"
    member = await worker.people.member(worker.priya.id)
    assert (member.language, member.time_zone) == (None, None)


async def test_a_language_is_requested_once_with_a_short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected_bot(listening=False) as place:
        with monkeypatch.context() as patched:
            patched.setattr("bot.platforms.slack.users.LOCALE_SECONDS", 0.05)
            place.slack.fail("users.info", Slow(2))
            assert await place.people.locale(place.priya.id) == Locale()
        place.slack.fail("users.info", Fails("fatal_error"))
        assert await place.people.locale(place.priya.id) == Locale()
    async with connected_bot(listening=False) as place:
        for _ in range(3):
            assert await place.people.locale(place.priya.id) == Locale("en-US", "Europe/Lisbon")
        assert len(place.slack.calls.of("users.info")) == 1


async def test_users_of_an_issuer_are_found_by_their_address_or_their_id_of_slack(worker: ConnectedBot) -> None:
    slack, team = worker.slack, worker.slack.workspace.team.id
    ada = slack.user("Ada", email="ada@corp.example", admin=True)
    slack.user("Gil", email="gil@corp.example", deleted=True)
    slack.user("Stella", email="stella@corp.example", team=Team("T0OTHER001", "other"), stranger=True)
    find = worker.surface.find_people
    for identity in (
        Identity("x", email="ada@corp.example"),
        Identity("x", slack_team=team, slack_user=ada.id, email="stella@corp.example"),
    ):
        [(member, conversation)] = await find(identity)
        assert (member.author.id, member.email, member.platform_admin) == (ada.id, "ada@corp.example", True)
        assert conversation.workspace_key == f"slack:{team}"
        assert conversation.channel.startswith("D")
    for nobody in (
        Identity("x"),
        Identity("x", email="nobody@corp.example"),
        Identity("x", email="gil@corp.example"),
        Identity("x", email="stella@corp.example"),
        Identity("x", slack_team="T0OTHER001", slack_user=ada.id, email="ada@corp.example"),
        Identity("x", slack_team=team, slack_user="U0NOBODY1"),
    ):
        assert await find(nobody) == [], nobody


async def test_without_the_scope_for_addresses_nobody_is_taken_for_another(worker: ConnectedBot) -> None:
    worker.slack.user("Ada", email="ada@corp.example")
    worker.slack.installation.scopes.discard("users:read.email")
    with pytest.raises(DeliveryFailed):
        await worker.surface.find_people(Identity("x", email="ada@corp.example"))
