"""Slack as the composition root builds it, and as the doctor checks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.app.components import Runtime
from bot.app.doctor import examine_all
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_runtime
from bot.app.slack import build_listener, build_lookups, check_settings, is_named_in, look_up_groups, open_slack
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import parse_rule
from bot.domain.profiles import Profile
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import RuleBook
from bot.errors import SettingsError
from bot.llm.models import ModelChoice
from bot.settings import Settings, read_settings
from tests.fakes.slack import FakeSlack, Message, User


def settings_for(slack: FakeSlack, **more: Any) -> Settings:
    return read_settings(slack_api_url=slack.url, slack_bot_token=slack.bot_token, **more)


@asynccontextmanager
async def at_work(slack: FakeSlack, **more: Any) -> AsyncIterator[Runtime]:
    """Run the bot in the workspace on the demo model."""
    settings = settings_for(slack, slack_app_token=slack.app.app_token, **more)
    async with open_slack(settings) as workspace:
        files = read_operator_files(settings)
        async with open_runtime(settings, files, ModelChoice("demo", "demo"), [workspace.surface]) as runtime:
            look_up_groups(workspace, runtime)
            listener = build_listener(workspace, runtime, settings, build_lookups(workspace, runtime))
            listening = asyncio.create_task(listener.run(runtime.engine, runtime.commands))
            await slack.sockets.wait_for_connections()
            yield runtime
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def groups_of(member: Member) -> set[str]:
    """Return a member's user groups by their names without the workspace."""
    return {role for role in member.roles if role.startswith("slack-group:") and role.count(":") == 1}


async def answer_to(slack: FakeSlack, user: User, text: str) -> Message:
    """Send a direct message and return the finished answer."""
    direct = slack.dm(user)
    asked = slack.say(user, direct, text)

    def finished_answers() -> list[Message]:
        return [message for message in slack.bot_messages(direct, asked.ts) if "Good answer" in str(message.blocks)]

    await slack.until(finished_answers, 30)
    return finished_answers()[-1]


async def give_feedback(slack: FakeSlack, user: User, message: Message, label: str) -> None:
    """Press a feedback button and wait for the thanks."""
    before = len(slack.bot_messages(slack.dm(user)))
    await slack.press(user, message, label)
    await slack.until(lambda: len(slack.bot_messages(slack.dm(user))) > before)


async def home_of(slack: FakeSlack, user: User) -> str:
    """Open a user's Home tab for the first time and return its text."""
    slack.open_home(user)
    await slack.until(lambda: slack.home(user))
    home = slack.home(user)
    assert home is not None
    return str(home.drawn)


async def test_feedback_is_thanked_and_home_shows_the_question() -> None:
    async with FakeSlack() as slack:
        slack.pace.strict = False
        priya, sam = slack.user("Priya"), slack.user("Sam")
        async with at_work(slack, admins=frozenset({f"slack:{sam.id}"})):
            message = await answer_to(slack, priya, "hello there")
            for label in ("Good answer", "Bad answer"):
                await give_feedback(slack, priya, message, label)
            hers, his = await home_of(slack, priya), await home_of(slack, sam)
            assert "✓ answered   hello there" in hers
            assert "Servers" not in hers
            assert "hello there" not in his
            assert "Servers (0)" in his


async def test_a_user_group_that_only_a_profile_names_can_approve_where_the_profile_holds() -> None:
    async with FakeSlack() as slack:
        slack.pace.strict = False
        priya, sam = slack.user("Priya"), slack.user("Sam")
        group = f"slack-group:{slack.group('ops', sam).id}"
        settings = settings_for(slack, slack_app_token=slack.app.app_token)
        async with open_slack(settings) as workspace:
            files = read_operator_files(settings)
            async with open_runtime(settings, files, ModelChoice("demo", "demo"), []) as runtime:
                look_up_groups(workspace, runtime)
                assert groups_of(await workspace.own.people.member(sam.id)) == set()
                by = Author("slack", priya.id, "Priya")
                await runtime.services.stores.profiles.save(Profile("p", "ops", approvers=frozenset({group})), by)
                assert groups_of(await workspace.own.people.member(sam.id)) == {group}
                assert groups_of(await workspace.own.people.member(priya.id)) == set()


@pytest.mark.parametrize("key", ["approvers", "asker"])
async def test_groups_that_only_a_rule_names_are_looked_up(key: str) -> None:
    """Without the lookup no member of the group could approve, and a rule against its members would never match."""
    async with FakeSlack() as slack:
        sam = slack.user("Sam")
        group = f"slack-group:{slack.group('ops', sam).id}"
        settings = settings_for(slack, slack_app_token=slack.app.app_token)
        async with open_slack(settings) as workspace:
            files = read_operator_files(settings)
            rule = parse_rule({"policy": "ASK_USER", "server": "bank", key: group})
            files = replace(files, policies=replace(files.policies, rules=(rule,)))
            async with open_runtime(settings, files, ModelChoice("demo", "demo"), []) as runtime:
                look_up_groups(workspace, runtime)
                assert groups_of(await workspace.own.people.member(sam.id)) == {group}


async def looked_at(settings: Settings, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the doctor. Return its exit code and the checks of Slack by name."""
    capsys.readouterr()
    code = await examine_all(settings, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {check["name"]: check for check in found if check["subject"] == "slack"}


async def test_the_doctor_looks_at_slack_where_it_is_configured(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeSlack() as slack:
        code, found = await looked_at(settings_for(slack, slack_app_token=slack.app.app_token), capsys)
        assert {name: check["finding"] for name, check in found.items()} == {
            "token": "ok",
            "scopes": "ok",
            "Socket Mode": "ok",
        }
        assert slack.workspace.team.id in found["token"]["detail"]
        slack.app.installations[slack.workspace.team.id].scopes.discard("files:read")
        code, found = await looked_at(settings_for(slack), capsys)
        assert code == 1
        assert found["scope files:read"]["detail"].endswith("attached files cannot be read.")
        assert "SLACK_APP_TOKEN" in found["way in"]["fix"]


async def test_the_doctor_names_a_missing_bot_token(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = await looked_at(read_settings(slack_signing_secret="s3cret"), capsys)
    assert code == 1
    assert found["token"]["fix"] == "set SLACK_BOT_TOKEN (xoxb-…)"
    assert "s3cret" not in str(found)
    assert (await looked_at(read_settings(), capsys))[1] == {}


@pytest.mark.parametrize(
    ("given", "cause", "fix"),
    [
        ({"slack_client_id": "1.2"}, "SLACK_CLIENT_SECRET is missing", "SLACK_CLIENT_ID and SLACK_CLIENT_SECRET"),
        ({"slack_client_secret": "s"}, "SLACK_CLIENT_ID is missing", "or neither"),
        ({"admins": "slack:U1"}, "ADMINS does not say of which Slack workspace slack:U1", "slack:T0123ABCD:U1"),
        ({"approvers": "slack-group:S1"}, "APPROVERS does not say", "slack-group:T0123ABCD:S1"),
        ({"ops_channel": "slack:C1"}, "OPS_CHANNEL does not say", "slack:T0123ABCD:C0123ABCD"),
    ],
)
def test_settings_that_several_workspaces_cannot_share_are_refused_at_the_start(
    given: dict[str, str], cause: str, fix: str
) -> None:
    complete = {"slack_client_id": "1.2", "slack_client_secret": "s"}
    settings = read_settings(**(given if set(given) & set(complete) else {**complete, **given}))
    with pytest.raises(SettingsError) as refused:
        check_settings(settings)
    assert cause in refused.value.cause
    assert fix in refused.value.fix
    assert "'s'" not in str(refused.value)


def test_names_of_one_workspace_of_an_organization_and_of_other_platforms_are_taken() -> None:
    names = "slack:T1:U1, slack:E1:U2, slack-group:T1:S1, discord:1, console:ana"
    check_settings(
        read_settings(slack_client_id="1.2", slack_client_secret="s", admins=names, ops_channel="slack:T1:C1")
    )
    # With the token of one workspace, names need no workspace.
    check_settings(read_settings(slack_bot_token="xoxb-1", admins="slack:U1", ops_channel="slack:C1"))


def test_the_workspaces_are_ids() -> None:
    assert read_settings(slack_workspaces="T0123ABCD, E0456").slack_workspaces == {"T0123ABCD", "E0456"}
    with pytest.raises(SettingsError, match="such as T0123ABCD"):
        read_settings(slack_workspaces="acme")


def test_sentences_in_one_workspace_do_not_name_approvers_of_another() -> None:
    here = ConversationKey("slack", "T1", "C1", "1.1")
    named = ["slack:T1:U1", "slack:T2:U2", "slack:E1:U3", "slack-group:T2:S1", "slack:U4", "discord:5"]
    assert [name for name in named if is_named_in(name, here)] == [
        "slack:T1:U1",
        "slack:E1:U3",
        "slack:U4",
        "discord:5",
    ]
    book = RuleBook(approvers=Approvers(frozenset({"slack:T1:U1", "slack:T2:U2"})), is_named_in=is_named_in)
    assert book.rules(here).approvers.admins == {"slack:T1:U1"}
    # In a workspace without a named admin, the platform's own admins get no rights.
    elsewhere = book.rules(ConversationKey("slack", "T3", "C1", "1.1")).approvers
    owner = Member(Author("slack", "U9", "Olga"), platform_admin=True)
    assert not elsewhere.administers(owner)
    assert not elsewhere.evidence(owner)


async def test_the_doctor_warns_of_rules_that_leave_the_workspace_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    rule = '[[rules]]\npolicy = "ASK_USER"\nserver = "bank"\napprovers = ["slack:U1", "slack:T1:U2"]\n'
    policy.write_text(f'default = "ASK_USER"\n{rule}')
    async with FakeSlack() as slack:
        settings = read_settings(
            slack_api_url=slack.url,
            slack_app_token=slack.app.app_token,
            slack_client_id="1.2",
            slack_client_secret="s",
            slack_workspaces="T0ACME",
            policy_file=str(policy),
        )
        _, found = await looked_at(settings, capsys)
    assert found["names"]["finding"] == "warning"
    assert "slack:U1 without its Slack workspace" in found["names"]["detail"]
    assert found["names"]["fix"].endswith("slack:T0123ABCD:U1")
    assert "PUBLIC_URL" in found["installation"]["fix"]
    assert "not installed yet" in found["workspace T0ACME"]["detail"]
