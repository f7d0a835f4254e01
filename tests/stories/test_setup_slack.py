"""`countersign setup slack`: a person at a terminal, who creates the app, copies tokens, and invites the bot."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.fakes.slack import Channel, FakeSlack, Team, User
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.setup_program import SetupFolder, answers, expect_refusal


class Company:
    """The workspace, and the folder of the setup."""

    def __init__(self, slack: FakeSlack, folder: Path) -> None:
        self.slack = slack
        self.priya: User = slack.user("Priya", owner=True, email="priya@acme.example")
        self.incidents: Channel = slack.channel("incidents", self.priya, with_bot=False)
        self.setup = SetupFolder(folder, SLACK_API_URL=slack.url)

    def invite(self) -> None:
        self.incidents.members.append(self.slack.bot.id)


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    async with FakeSlack() as slack:
        slack.pace.strict = False
        yield Company(slack, tmp_path)


async def creates_the_app(terminal: ProgramOnTerminal) -> None:
    await answers(terminal, "Name of the app")
    await answers(terminal, "Which features do you want?")
    await answers(terminal, "How does Slack reach the bot?")
    await terminal.shows("https://api.slack.com/apps?new_app=1&manifest_json=")
    await answers(terminal, "Press Enter when the app is installed")


async def enters_tokens(terminal: ProgramOnTerminal, company: Company) -> None:
    await answers(terminal, "Bot User OAuth Token", company.slack.bot_token)
    await answers(terminal, "is this the right workspace?")
    await answers(terminal, "App-level token", company.slack.app.app_token)


async def chooses_a_channel(terminal: ProgramOnTerminal, company: Company) -> None:
    await answers(terminal, "Channel", "#incidents")
    await terminal.shows("/invite @countersign", "Waiting for it")
    company.invite()
    await answers(terminal, "introduce itself in #incidents?")


async def test_a_person_sets_up_slack(company: Company) -> None:
    async with company.setup.at_terminal("slack") as terminal:
        await creates_the_app(terminal)
        await enters_tokens(terminal, company)
        await answers(terminal, "You in Slack", company.priya.id)
        await answers(terminal, "is that you?")
        await answers(terminal, "Who else may approve calls?")
        await chooses_a_channel(terminal, company)
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
        assert terminal.is_restored
    assert company.setup.values == {
        "SLACK_BOT_TOKEN": company.slack.bot_token,
        "SLACK_APP_TOKEN": company.slack.app.app_token,
        "ADMINS": f"slack:{company.priya.id}",
    }
    assert company.setup.mode == 0o600
    for token in (company.slack.bot_token, company.slack.app.app_token):
        assert token.encode() not in terminal.raw
        assert token not in (company.setup.folder / "data" / "setup.json").read_text()
    (message,) = company.slack.bot_messages(company.incidents)
    assert "what can you do?" in str(message.blocks)

    # A second time everything is ticked, nothing is asked, nothing is posted, and the bot starts.
    async with company.setup.at_terminal("slack") as terminal:
        await answers(terminal, "Start the bot now?", "y", last=True)
        await company.slack.sockets.wait_for_connections()
        shown = terminal.text
        for step in range(1, 7):
            assert f"[{step}/6]" in shown
        assert shown.count("✓") >= 6
        assert "To change a step: --redo app|token" in shown
        assert "(hidden)" not in shown
        terminal.signal(signal.SIGINT)
        assert await terminal.wait_for_exit() == 0
    assert len(company.slack.bot_messages(company.incidents)) == 1


async def test_an_interrupted_setup_goes_on_where_it_stopped(company: Company) -> None:
    async with company.setup.at_terminal("slack") as terminal:
        await creates_the_app(terminal)
        await answers(terminal, "Bot User OAuth Token", company.slack.bot_token)
        await answers(terminal, "is this the right workspace?")
        await terminal.shows("App-level token, xapp-… (hidden)")
        terminal.press("\x03")
        assert await terminal.wait_for_exit() == 130
        assert "`countersign setup slack` continues from there" in terminal.text
        assert terminal.is_restored
    assert company.setup.values == {"SLACK_BOT_TOKEN": company.slack.bot_token}
    async with company.setup.at_terminal("slack") as terminal:
        await answers(terminal, "App-level token", company.slack.app.app_token)
        assert "✓ SLACK_BOT_TOKEN is set in .env" in terminal.text
        assert "✓ @countersign in acme.slack.com (T0ACME)." in terminal.text
        await answers(terminal, "You in Slack")
        await terminal.shows("The admins and owners of the workspace administer")
        await terminal.shows("Channel, #name or id, or skip")
        await answers(terminal, "Channel", "#incidents")
        await terminal.shows("Waiting for it")
        # While it waits, too, Ctrl-C ends it at once.
        terminal.signal(signal.SIGINT)
        assert await terminal.wait_for_exit() == 130
    async with company.setup.at_terminal("slack") as terminal:
        await terminal.shows("✓ Socket Mode: Slack offers a connection.", "✓ The admins and owners of the workspace")
        await chooses_a_channel(terminal, company)
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0


async def test_every_wrong_bot_token_is_told_with_its_fix_and_asked_for_again(company: Company) -> None:
    slack = company.slack
    other = slack.install(Team("T0BETA", "Beta", "beta"))
    revoked = slack.install(Team("T0GONE", "Gone", "gone"))
    revoked.revoked = True
    company.setup.note("slack", created="yes")
    ask = "Bot User OAuth Token"
    async with company.setup.at_terminal("slack") as terminal:
        await expect_refusal(terminal, ask, "", "Nothing was entered.", "OAuth & Permissions")
        await expect_refusal(
            terminal, ask, slack.app.app_token, "app-level token. It is asked for in the next step", "xoxb-…"
        )
        await expect_refusal(terminal, ask, "xoxp-1-2-3-fake", "the token of a person", "Bot User OAuth Token")
        await expect_refusal(terminal, ask, "xoxe.xoxb-1-fake", "That token expires", "without token rotation")
        await expect_refusal(terminal, ask, slack.app.signing_secret, "not a bot token", "OAuth & Permissions")
        await expect_refusal(
            terminal, ask, "0123456789abcdef" * 2, "That is a secret of the app", "OAuth & Permissions"
        )
        await expect_refusal(terminal, ask, "xoxb-1 2", "characters that no token has", "copy it again, whole")
        await expect_refusal(terminal, ask, "xoxb-wrong", "not a whole bot token", "OAuth & Permissions")
        await expect_refusal(terminal, ask, "xoxb-1-unknown", "Slack does not know the token.", "copy it again, whole")
        await expect_refusal(terminal, ask, revoked.token, "The token was revoked.", "install the app again")
        assert not company.setup.env.exists()
        await answers(terminal, ask, other.token)
        await answers(terminal, "@countersign in beta.slack.com: is this the right workspace?", "n")
        await terminal.shows("The token is of another workspace.")
        slack.installation.scopes -= {"files:read", "im:history"}
        await answers(terminal, ask, slack.bot_token)
        await terminal.shows(
            "2 scopes are missing", "files:read: without it attached files cannot be read", "im:history: without it"
        )
        await terminal.shows("Fix: under OAuth & Permissions add im:history, files:read to the Bot Token Scopes")
        await terminal.shows(f"https://api.slack.com/apps/{slack.app.id}/oauth")
        slack.installation.scopes.add("files:read")
        await answers(terminal, "What now?")
        await terminal.shows("1 scope is missing")
        slack.installation.scopes.add("im:history")
        await answers(terminal, "What now?")
        await answers(terminal, "is this the right workspace?")
        await terminal.shows("App-level token, xapp-… (hidden)")
        assert await terminal.leaves() == 130
        for token in (other.token, revoked.token, slack.bot_token, slack.app.app_token, "xoxp-1-2-3-fake"):
            assert token.encode() not in terminal.raw
    assert company.setup.values == {"SLACK_BOT_TOKEN": slack.bot_token}


async def test_another_token_is_saved_in_the_place_of_one_without_scopes(company: Company) -> None:
    slack, ask = company.slack, "Bot User OAuth Token"
    other = slack.install(Team("T0BETA", "Beta", "beta"))
    slack.installation.scopes -= {"files:read"}
    company.setup.note("slack", created="yes")
    company.setup.env.write_text(f"SLACK_BOT_TOKEN={slack.bot_token}\n")
    async with company.setup.at_terminal("slack") as terminal:
        await answers(terminal, "Use it?")
        await terminal.shows("1 scope is missing")
        await answers(terminal, "What now?", "2")
        await answers(terminal, ask, other.token)
        await answers(terminal, "Replace the SLACK_BOT_TOKEN")
        await terminal.shows("App-level token, xapp-… (hidden)")
    assert company.setup.values == {"SLACK_BOT_TOKEN": other.token}


async def test_every_wrong_app_level_token_is_told_with_its_fix_and_asked_for_again(company: Company) -> None:
    slack, ask = company.slack, "App-level token"
    company.setup.env.write_text(f"SLACK_BOT_TOKEN={slack.bot_token}\n")
    company.setup.note("slack", created="yes", team="T0ACME")
    async with company.setup.at_terminal("slack") as terminal:
        await terminal.shows(f"https://api.slack.com/apps/{slack.app.id}/general")
        await expect_refusal(terminal, ask, "", "Nothing was entered.", "connections:write")
        await expect_refusal(terminal, ask, slack.bot_token, "That is the bot token again.", "App-Level Tokens")
        await expect_refusal(terminal, ask, "xoxp-1-fake", "That is not an app-level token", "App-Level Tokens")
        await expect_refusal(terminal, ask, "xapp-1-A0OTHER-1-x", "(invalid_auth)", "check SLACK_APP_TOKEN")
        slack.app.app_scopes.clear()
        await expect_refusal(terminal, ask, slack.app.app_token, "(missing_scope)", "scope connections:write")
        slack.app.app_scopes.add("connections:write")
        slack.app.app_token = "xapp-1-A0OTHER-1-fake"
        await expect_refusal(
            terminal, ask, slack.app.app_token, "is of app A0OTHER, the bot token of app A0COUNTER", "the app"
        )
        slack.app.app_token = "xapp-1-A0COUNTER-2-fake"
        await answers(terminal, ask, slack.app.app_token)
        await terminal.shows("You in Slack")
    assert company.setup.values["SLACK_APP_TOKEN"] == slack.app.app_token


async def test_values_of_the_file_stay_and_tokens_are_replaced_only_after_a_question(company: Company) -> None:
    slack = company.slack
    old = slack.install(Team("T0OLD", "Old", "old"))
    company.setup.env.write_text(
        f"# The operator's own notes\nLOG_FORMAT=text  # for people\n\nexport SLACK_BOT_TOKEN='{old.token}' # old\n"
        "ADMINS=console:owner\n"
    )
    company.setup.env.chmod(0o644)
    async with company.setup.at_terminal("slack") as terminal:
        await terminal.shows("Others on this machine can read .env")
        await answers(terminal, "The SLACK_BOT_TOKEN in .env is @countersign in old.slack.com. Use it?", "n")
        await answers(terminal, "Bot User OAuth Token", slack.bot_token)
        await answers(terminal, "is this the right workspace?")
        await answers(terminal, "Replace the SLACK_BOT_TOKEN that .env has?", "n")
        await terminal.shows("The old token was kept.")
        assert company.setup.values["SLACK_BOT_TOKEN"] == old.token
        await answers(terminal, "The SLACK_BOT_TOKEN in .env is", "n")
        await answers(terminal, "Bot User OAuth Token", slack.bot_token)
        await answers(terminal, "is this the right workspace?")
        await answers(terminal, "Replace the SLACK_BOT_TOKEN that .env has?")
        await answers(terminal, "App-level token", slack.app.app_token)
        await answers(terminal, "You in Slack", company.priya.id)
        await answers(terminal, "is that you?")
        await answers(terminal, "Who else may approve calls?", "@ops")
        await terminal.shows("Who else may approve calls?")
    assert company.setup.env.read_text() == (
        "# The operator's own notes\nLOG_FORMAT=text  # for people\n\n"
        f"export SLACK_BOT_TOKEN={slack.bot_token} # old\n"
        f"ADMINS=console:owner\nSLACK_APP_TOKEN={slack.app.app_token}\n"
    )
    assert company.setup.mode == 0o600


async def test_people_are_found_by_email_name_and_id_and_a_channel_is_joined(company: Company) -> None:
    slack = company.slack
    slack.user("Sam"), slack.user("Sam"), slack.user("Ann", guest="multi")
    ops = slack.group("ops", company.priya)
    company.setup.env.write_text(f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_APP_TOKEN={slack.app.app_token}\n")
    company.setup.note("slack", created="yes", team="T0ACME")
    you = "You in Slack"
    async with company.setup.at_terminal("slack", "--wait", "1") as terminal:
        await expect_refusal(terminal, you, "nobody", "Slack knows nobody called 'nobody'", "write the id")
        await expect_refusal(terminal, you, "U0NOBODY99", "Slack knows nobody called 'U0NOBODY99'", "write the id")
        slack.installation.scopes.discard("users:read.email")
        await expect_refusal(terminal, you, "priya@acme.example", "users:read.email", "write the member id")
        slack.installation.scopes.add("users:read.email")
        await expect_refusal(terminal, you, "sam@acme.example", "Slack knows nobody", "write the id")
        await answers(terminal, you, "sam")
        await answers(terminal, "Which sam?", "")
        await expect_refusal(
            terminal, "Who else may approve calls?", "sam", "2 people are called 'sam'", "write the id"
        )
        await answers(terminal, "Who else may approve calls?", "@ops, Ann")
        await terminal.shows("Sam (U", "member of the workspace, administers")
        await expect_refusal(
            terminal, "Channel", "#nowhere", "was not invited into #nowhere yet", "type the line above"
        )
        slack.installation.scopes.add("channels:join")
        await answers(terminal, "Channel", f"https://acme.slack.com/archives/{company.incidents.id}")
        await terminal.shows("The bot joined it by itself.")
        await answers(terminal, "introduce itself in #incidents?", "n")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
    assert company.setup.values["APPROVERS"] == f"slack-group:{ops.id},slack:{_id(slack, 'Ann')}"
    assert slack.bot_messages(company.incidents) == []


def _id(slack: FakeSlack, name: str) -> str:
    return next(user.id for user in slack.workspace.users.values() if user.name == name)


async def test_an_app_for_http_with_some_features(company: Company) -> None:
    slack = company.slack
    slack.installation.scopes -= {"commands", "assistant:write", "im:history", "im:read", "mpim:history", "mpim:read"}
    async with company.setup.at_terminal("slack", columns=200) as terminal:
        await answers(terminal, "Name of the app", "Ops")
        await answers(terminal, "Which features do you want?", "2")
        await answers(terminal, "Slash commands", "n")
        await answers(terminal, "Direct and group messages", "n")
        await answers(terminal, "The agent view")
        await answers(terminal, "The Home tab")
        await answers(terminal, "How does Slack reach the bot?", "2")
        await answers(terminal, "Public https address of the bot", "http://bot.example.com")
        await terminal.shows("Slack calls https addresses only.")
        await answers(terminal, "Public https address of the bot", "https://bot.example.com/")
        await answers(terminal, "Press Enter when the app is installed")
        manifest = _manifest(terminal.raw.decode())
        await answers(terminal, "Bot User OAuth Token", slack.bot_token)
        await answers(terminal, "is this the right workspace?")
        await expect_refusal(terminal, "Signing Secret", "xapp-1", "That is not a signing secret", "not Client Secret")
        await answers(terminal, "Signing Secret", "0123456789abcdef" * 2)
        await terminal.shows("https://bot.example.com/slack/events")
        await answers(terminal, "You in Slack")
        await chooses_a_channel(terminal, company)
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
    assert manifest["display_information"]["name"] == manifest["features"]["bot_user"]["display_name"] == "Ops"
    assert not {"slash_commands", "shortcuts", "agent_view"} & manifest["features"].keys()
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == slack.installation.scopes
    assert "message.im" not in manifest["settings"]["event_subscriptions"]["bot_events"]
    assert manifest["settings"]["event_subscriptions"]["request_url"] == "https://bot.example.com/slack/events"
    assert manifest["settings"]["socket_mode_enabled"] is False
    assert company.setup.values["SLACK_WITHOUT"] == "commands,direct"
    assert company.setup.values["PUBLIC_URL"] == "https://bot.example.com"
    assert "/mcp list" not in str(slack.bot_messages(company.incidents)[0].blocks)


def _manifest(text: str) -> Any:
    """The manifest in the address that was printed."""
    (query,) = re.findall(r"https://api\.slack\.com/apps\?(new_app=1&manifest_json=[^\s\x1b]+)", text)
    return json.loads(parse_qs(query)["manifest_json"][0])


async def test_the_page_opens_in_a_browser_if_there_is_one(company: Company, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{opened}"\n')
    browser.chmod(0o700)
    company.setup.place.environment["BROWSER"] = str(browser)
    async with company.setup.at_terminal("slack", "--name", "Ops") as terminal:
        await answers(terminal, "Which features do you want?")
        await answers(terminal, "How does Slack reach the bot?")
        await answers(terminal, "Open Slack in your browser?")
        await terminal.shows("Slack's page is open in your browser", "Press Enter when the app is installed")
        assert "manifest_json" not in terminal.text
    assert _manifest(opened.read_text())["display_information"]["name"] == "Ops"
    async with company.setup.at_terminal("slack", "--no-browser", "--name", "Ops") as terminal:
        await answers(terminal, "Which features do you want?")
        await answers(terminal, "How does Slack reach the bot?")
        await terminal.shows("https://api.slack.com/apps?new_app=1&manifest_json=")


async def test_a_channel_may_wait_for_later(company: Company) -> None:
    slack = company.slack
    company.setup.env.write_text(f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_APP_TOKEN={slack.app.app_token}\n")
    company.setup.note("slack", created="yes", team="T0ACME", admins="workspace")
    async with company.setup.at_terminal("slack") as terminal:
        await answers(terminal, "Channel", "skip")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
        assert "Later: in a channel, type /invite @countersign" in terminal.text
    async with company.setup.at_terminal("slack", "--redo", "channel") as terminal:
        await answers(terminal, "Channel")
        await terminal.shows("In Slack, in any channel, type:", "Waiting for it")
        company.invite()
        await answers(terminal, "introduce itself in #incidents?")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
    assert len(slack.bot_messages(company.incidents)) == 1


# -------------------- without a terminal


async def test_without_a_terminal_print_is_named(company: Company) -> None:
    outcome = await company.setup.prints("slack")
    assert outcome.code == 2
    assert "countersign setup slack --print" in outcome.err


async def test_print_shows_every_step_and_the_remaining_ones(company: Company) -> None:
    outcome = await company.setup.prints("slack", "--print")
    assert outcome.code == 4, outcome.err
    assert _manifest(outcome.out)["display_information"]["name"] == "Countersign"
    for text in ("[1/6] Create the app", "SLACK_BOT_TOKEN=xoxb-…", "SLACK_APP_TOKEN=xapp-…", "/invite @countersign"):
        assert text in outcome.out
    assert not company.setup.env.exists()
    assert not (company.setup.folder / "data" / "setup.json").exists()

    slack = company.slack
    slack.installation.scopes.discard("files:read")
    company.setup.env.write_text(f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_APP_TOKEN=xapp-1-A0-1-wrong\n")
    outcome = await company.setup.prints("slack", "--print")
    assert outcome.code == 1
    assert "files:read (without it attached files cannot be read)" in outcome.out
    assert "(invalid_auth)" in outcome.out
    assert slack.bot_token not in outcome.out + outcome.err


async def test_a_manifest_that_is_too_long_for_an_address_is_printed_to_be_pasted(company: Company) -> None:
    address = f"https://bot.example.com/{'a' * 700}"
    outcome = await company.setup.prints("slack", "--print", "--http", address, "--name", "Ops")
    assert outcome.code == 4, outcome.err
    assert "manifest_json=" not in outcome.out
    assert "choose From a manifest" in outcome.out
    text = "\n".join(line.removeprefix("  ") for line in outcome.out.splitlines())
    manifest = json.loads(text[text.index("{") : text.index("\n}\n") + 2])
    assert manifest["display_information"]["name"] == "Ops"
    assert manifest["settings"]["interactivity"]["request_url"] == f"{address}/slack/events"


async def test_a_script_sets_up_slack_with_tokens_from_standard_input(company: Company) -> None:
    slack = company.slack
    slack.installation.scopes |= {"channels:join", "users:read.email"}
    typed = f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_APP_TOKEN={slack.app.app_token}\n"
    words = ("slack", "--print", "--stdin", "--admin", "priya@acme.example", "--channel", "#incidents")
    outcome = await company.setup.prints(*words, typed=typed)
    assert outcome.code == 4, outcome.out  # nothing is written, joined or posted so far
    assert not company.setup.env.exists()
    assert slack.bot_messages(company.incidents) == []
    outcome = await company.setup.prints(*words, "--write", typed=typed)
    assert outcome.code == 0, outcome.out
    assert company.setup.values == {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app.app_token,
        "ADMINS": f"slack:{company.priya.id}",
    }
    assert company.setup.mode == 0o600
    assert len(slack.bot_messages(company.incidents)) == 1
    outcome = await company.setup.prints("slack", "--print", "--write", "--json")
    assert outcome.code == 0, outcome.out
    steps = [event for event in outcome.events if "step" in event]
    assert [step["step"] for step in steps] == ["app", "token", "connection", "admins", "channel", "message"]
    assert {step["status"] for step in steps} == {"done"}
    assert len(slack.bot_messages(company.incidents)) == 1
    for token in (slack.bot_token, slack.app.app_token):
        assert token not in outcome.out + outcome.err


async def test_a_script_may_leave_people_and_channel_to_slack(company: Company) -> None:
    slack = company.slack
    typed = f"SLACK_BOT_TOKEN={slack.bot_token}\nSLACK_APP_TOKEN={slack.app.app_token}\n"
    words = ("slack", "--print", "--write", "--stdin", "--admin", "workspace", "--channel", "skip")
    outcome = await company.setup.prints(*words, typed=typed)
    assert outcome.code == 0, outcome.out
    assert set(company.setup.values) == {"SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"}
    assert slack.calls.of("chat.postMessage") == []


async def test_a_token_of_the_environment_is_not_shadowed_by_one_in_the_file(company: Company) -> None:
    slack = company.slack
    company.setup.place.environment["SLACK_BOT_TOKEN"] = slack.bot_token
    typed = "SLACK_BOT_TOKEN=xoxb-2-another\n"
    slack.install(Team("T0BETA", "Beta", "beta")).token = "xoxb-2-another"
    outcome = await company.setup.prints("slack", "--print", "--write", "--stdin", typed=typed)
    assert outcome.code == 1
    assert "The environment sets SLACK_BOT_TOKEN" in outcome.out
    assert not company.setup.env.exists()
