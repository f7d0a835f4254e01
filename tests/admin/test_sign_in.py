"""A server that requires an OAuth sign-in: its definition, the link, status, sign-out, and the required role."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.domain.commands import Reply, ReplyAction
from bot.domain.servers import (
    AUTH_SECRET,
    Authentication,
    AuthenticationKind,
    OAuthTerms,
    ServerSnapshot,
    ServerStatus,
)
from bot.errors import ServerTrouble
from bot.examination import Check, CheckStatus
from bot.ports import SignedIn, SignInInfo
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, GUEST, OPERATOR, WEB, CommandHarness, two_servers
from tests.admin.sign_ins import LOGIN, SigningOffice
from tests.fakes.parts import ANA, HALL

ADD = "mcp add jira --url https://jira.example/mcp"
PROBLEM = "Server jira wants a sign-in. Fix: an admin signs in with /mcp connect jira."
SIGN_IN = ReplyAction("Sign in to jira", ("mcp", "connect", "jira"))
RANDOM_ID = "q7Xk29LmPz81RtYw45VbNc63HsJd"


@pytest.fixture
def held() -> SigningOffice:
    return SigningOffice(two_servers())


async def add_jira(held: SigningOffice, line: str = ADD) -> str:
    """Add `jira`, which requires a sign-in, and return its id."""
    assert not (await held.ask(line)).failed
    server = held.record.id
    held.sign_ins.takes.add(server)
    states = [state for state in held.servers.states if state.config.id != server]
    held.servers.states = [*states, ServerSnapshot(held.record.config, ServerStatus.AUTH_REQUIRED, PROBLEM)]
    held.servers.done.clear()
    return server


def steps(reply: Reply) -> list[tuple[str, ...]]:
    return [action.words for action in reply.actions]


# Definition


@pytest.mark.parametrize(
    ("options", "expected", "secret"),
    [
        ("--auth oauth", Authentication(AuthenticationKind.OAUTH), None),
        (
            f"--auth oauth --client-id {RANDOM_ID} --secret env:JIRA",
            Authentication(AuthenticationKind.OAUTH, client_id=RANDOM_ID),
            "env:JIRA",
        ),
        (f"--client-id={RANDOM_ID}", Authentication(AuthenticationKind.OAUTH, client_id=RANDOM_ID), None),
        ("--scope read", Authentication(AuthenticationKind.OAUTH, scope="read"), None),
        (
            "--issuer https://login.example.com/a",
            Authentication(AuthenticationKind.OAUTH, issuer="https://login.example.com/a"),
            None,
        ),
        (
            "--auth client-credentials --client-id bot --secret env:JIRA",
            Authentication(AuthenticationKind.CLIENT_CREDENTIALS, client_id="bot"),
            "env:JIRA",
        ),
    ],
)
async def test_options_say_how_to_sign_in_by_oauth(
    held: SigningOffice, options: str, expected: Authentication, secret: str | None
) -> None:
    assert not (await held.ask(f"{ADD} {options}")).failed
    assert held.record.authentication == expected
    assert {slot: str(each) for slot, each in held.record.secrets.items()} == ({AUTH_SECRET: secret} if secret else {})


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("--auth client_credentials", {"--client-id", "--secret"}),
        ("--auth client_credentials --client-id bot", {"--secret"}),
        ("--auth client_credentials --secret env:JIRA", {"--client-id"}),
        ("--auth oauth --secret env:JIRA", {"--client-id"}),
        ('--auth oauth --scope "quo"ted"', {"--scope"}),
    ],
)
async def test_a_missing_value_of_a_sign_in_has_its_error_under_its_option(
    held: SigningOffice, options: str, wrong: set[str]
) -> None:
    reply = await held.refusal(f"{ADD} {options}")
    assert {name for name, _ in reply.details} == wrong
    assert not held.store.entries


@pytest.mark.parametrize("line", [f"{ADD} --client-id ghp_{'a1B2' * 9}", f"{ADD} --title {RANDOM_ID}"])
async def test_a_client_id_may_look_random_and_nothing_else_may(held: SigningOffice, line: str) -> None:
    reply = await held.refusal(line)
    assert "looks like a token" in reply.text
    assert not held.store.entries


async def test_the_form_asks_for_the_values_of_a_sign_in_by_oauth(held: SigningOffice) -> None:
    first = {"title": "Jira", "transport": "streamable_http", "where": "https://jira.example/mcp", "auth": "oauth"}
    second = await held.next_form(await held.form("mcp add"), first)
    assert [(field.name, field.required) for field in second.fields] == [
        ("client_id", False),
        ("scope", False),
        ("secret", False),
    ]
    await held.reply_to(second, {"client_id": RANDOM_ID, "scope": "read  write read"})
    assert held.record.authentication == Authentication(
        AuthenticationKind.OAUTH, client_id=RANDOM_ID, scope="read write"
    )


async def test_the_form_of_client_credentials_wants_a_client_and_its_secret(held: SigningOffice) -> None:
    first = {"title": "Jira", "where": "https://jira.example/mcp", "auth": "client_credentials"}
    second = await held.next_form(await held.form("mcp add"), first)
    again = await held.next_form(second, {"client_id": "", "secret": ""})
    assert {field.name for field in again.fields if field.error} == {"client_id", "secret"}
    await held.reply_to(again, {"client_id": "bot", "secret": "env:JIRA"})
    assert held.record.authentication.kind is AuthenticationKind.CLIENT_CREDENTIALS


async def test_a_key_of_the_server_never_becomes_a_clients_secret_nor_the_other_way_round(held: SigningOffice) -> None:
    await held.ask(f"{ADD} --auth api_key --secret env:JIRA_KEY")
    assert not (await held.ask("mcp edit jira --auth oauth")).failed
    assert held.record.secrets == {}
    await held.ask("mcp edit jira --client-id bot --secret env:JIRA_CLIENT")
    wrong = await held.ask("mcp edit jira --auth api_key")
    assert "--secret" in dict(wrong.details)
    assert not (await held.ask("mcp edit jira --scope read")).failed
    assert str(held.record.secrets[AUTH_SECRET]) == "env:JIRA_CLIENT"


async def test_the_form_of_a_change_has_the_client_where_one_signs_in_by_oauth(held: SigningOffice) -> None:
    await held.ask(f"{ADD} --auth oauth --client-id {RANDOM_ID}")
    form = await held.form("mcp edit jira")
    names = [[field.name for field in form.fields]]
    while not form.title.endswith("8 of 8"):
        following = await held.next_form(form, {"tool_timeout": "9"} if form.title.endswith("5 of 8") else {})
        form = following
        names.append([field.name for field in form.fields])
    assert names[2] == ["client_id", "scope"]
    assert "use_instructions" in names[3]
    assert "tool_timeout" in names[4]
    await held.reply_to(form, {})
    assert held.record.authentication.client_id == RANDOM_ID


async def test_taking_the_clients_secret_away_leaves_the_sign_in(held: SigningOffice) -> None:
    await held.ask(f"{ADD} --auth oauth --client-id bot --secret env:JIRA")
    assert not (await held.ask("mcp secret clear jira auth")).failed
    assert (held.record.authentication.kind, held.record.secrets) == (AuthenticationKind.OAUTH, {})


async def test_how_it_is_signed_in_to_is_shown_without_any_secret(held: SigningOffice) -> None:
    await held.ask(f"{ADD} --auth oauth --client-id bot --scope read --secret env:JIRA")
    shown = dict((await held.ask("mcp show jira")).details)
    assert shown["sign-in"] == "OAuth, in a browser, as client bot, for read"
    assert shown["secret auth"] == "env:JIRA"
    assert shown["redirect address"] == held.sign_ins.redirect_uri(held.record.config.id)
    terms = OAuthTerms(AuthenticationKind.CLIENT_CREDENTIALS, "bot", "hunter2", "read")
    held.servers.states = [ServerSnapshot(replace(WEB, sign_in=terms), ServerStatus.CONNECTED)]
    shown = dict((await held.ask("mcp show web-search")).details)
    assert shown["sign-in"] == "OAuth, by the bot itself, as client bot, for read"
    assert "hunter2" not in repr(shown)
    assert "redirect address" not in shown
    outside = await held.ask("mcp show web-search", GUEST)
    assert "sign-in" not in dict(outside.details)


async def test_a_secret_of_no_client_is_not_asked_for(held: SigningOffice) -> None:
    await held.ask(f"{ADD} --auth oauth")
    reply = await held.refusal("mcp secret set jira auth env:JIRA")
    assert "--client-id" in reply.text
    assert held.record.secrets == {}


# The link


async def test_connecting_a_server_that_wants_a_sign_in_gives_a_link_to_it(held: SigningOffice) -> None:
    server = await add_jira(held)
    first, *_, reply = await held.answers("mcp", "connect", "jira")
    assert isinstance(first, Reply)
    assert isinstance(reply, Reply)
    assert not reply.failed
    assert reply.private
    address = f"{LOGIN}/authorize?client_id=bot&scope=read%20write&state={1:043d}"
    assert f"[Sign in to jira]({address}) leads to `login.example`." in reply.text
    assert "everybody's calls run as that account" in reply.text
    assert "for 10 minutes" in reply.text
    assert dict(reply.details) == {
        "leads to": "login.example",
        "whole address": address,
        "comes back to": held.sign_ins.redirect_uri(server),
    }
    assert held.sign_ins.begun == [SignedIn(server, ANA, HALL)]
    [again] = reply.actions
    assert (await held.ask(" ".join(again.words))).text.startswith("A new sign-in to `jira`.")
    assert len(held.sign_ins.begun) == 2


async def test_an_address_that_would_break_out_of_its_link_is_written_so_that_it_cannot(held: SigningOffice) -> None:
    await add_jira(held)
    held.sign_ins.address = "https://xn--lgin-qoa.example:8443/a)[click](https://evil.example)?x=<b>`'\"\\ y"
    reply = await held.ask("mcp connect jira")
    [target] = re.findall(r"\]\(([^)]*)\)", reply.text)
    assert target.startswith("https://xn--lgin-qoa.example:8443/a%29%5Bclick%5D%28https://evil.example%29?x=%3Cb%3E%60")
    facts = dict(reply.details)
    assert facts["leads to"] == "xn--lgin-qoa.example:8443"
    assert "look like others" in facts["careful"]
    assert facts["whole address"].startswith(held.sign_ins.address)


async def test_a_sign_in_that_cannot_begin_says_why(held: SigningOffice) -> None:
    await add_jira(held)
    held.sign_ins.trouble = ServerTrouble("It has no PKCE.", "ask its operator")
    reply = await held.refusal("mcp connect jira")
    assert dict(reply.details) == {"cause": "It has no PKCE.", "fix": "ask its operator"}


async def test_a_server_that_is_connected_gives_no_link_by_itself(held: SigningOffice) -> None:
    server = await add_jira(held)
    held.servers.states[-1] = ServerSnapshot(held.record.config, ServerStatus.CONNECTED)
    assert (await held.ask("mcp connect jira")).text.startswith("`jira` is connected")
    assert held.sign_ins.begun == []
    assert not (await held.ask("mcp secret rotate jira sign-in")).failed
    assert [each.server for each in held.sign_ins.begun] == [server]


async def test_a_server_that_takes_no_sign_in_gives_no_link(held: SigningOffice) -> None:
    server = await add_jira(held)
    held.sign_ins.takes.discard(server)
    plain = await held.refusal("mcp connect jira")
    assert ("problem", PROBLEM) in plain.details
    assert "--auth oauth" in (await held.ask("mcp secret set jira sign-in")).text
    assert held.sign_ins.begun == []


# Offers of a sign-in


@pytest.mark.parametrize("line", ["mcp list", "mcp show jira", "mcp health", "mcp doctor jira", "mcp verify jira"])
async def test_every_place_that_shows_the_problem_has_a_button_for_it(held: SigningOffice, line: str) -> None:
    await add_jira(held)
    held.servers.checks = [Check("authentication", CheckStatus.BROKEN, "It answers 401.", "sign in")]
    assert SIGN_IN.words in steps(await held.ask(line))
    if line in ("mcp list", "mcp show jira", "mcp health"):
        assert PROBLEM in repr((await held.ask(line)).details)


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        (ServerStatus.PENDING, True),
        (ServerStatus.IDLE, True),
        (ServerStatus.CONNECTED, False),
        (ServerStatus.FAILED, False),
        (ServerStatus.DISABLED, False),
    ],
)
async def test_a_problem_other_than_a_sign_in_offers_none(
    held: SigningOffice, status: ServerStatus, *, offered: bool
) -> None:
    server = await add_jira(held)
    held.servers.states[-1] = ServerSnapshot(held.record.config, status)
    assert (SIGN_IN.words in steps(await held.ask("mcp show jira"))) is offered
    held.sign_ins.signed_in[server] = SignInInfo("slack:U7", NOW, LOGIN)
    assert SIGN_IN.words not in steps(await held.ask("mcp show jira"))


@pytest.mark.parametrize("line", ["mcp list", "mcp show jira"])
async def test_members_get_no_button_to_sign_in(held: SigningOffice, line: str) -> None:
    await add_jira(held)
    assert (await held.ask(line, GUEST)).actions == ()


async def test_adding_a_server_that_wants_a_sign_in_offers_it_at_once(held: SigningOffice) -> None:
    held.servers.checks = [Check("authentication", CheckStatus.BROKEN, "It answers 401.", "sign in")]

    class Everything(set[str]):
        def __contains__(self, server: object) -> bool:
            return True

    held.sign_ins.takes = Everything()
    settled = held.servers.wait_ready

    async def refuse() -> None:
        await settled()
        held.servers.states = [ServerSnapshot(held.record.config, ServerStatus.AUTH_REQUIRED, PROBLEM)]

    held.servers.wait_ready = refuse  # type: ignore[method-assign]
    reply = await held.ask(ADD)
    assert steps(reply)[0] == SIGN_IN.words
    assert held.sign_ins.begun == []


# Stored sign-ins and the sign-out


async def test_sign_ins_are_listed_and_can_be_undone(held: SigningOffice) -> None:
    server = await add_jira(held)
    held.sign_ins.signed_in[server] = SignInInfo("slack:U7", NOW - 7200, f"{LOGIN}/tenant")
    shown = dict((await held.ask("mcp show jira")).details)
    assert shown["signed in"] == "2 h ago by slack:U7, at login.example"
    assert "signed in" not in dict((await held.ask("mcp show jira", GUEST)).details)
    out = await held.ask("mcp secret clear jira sign-in")
    assert not out.failed
    assert steps(out) == [SIGN_IN.words]
    assert held.sign_ins.signed_in == {}
    assert (await held.ask("mcp secret clear jira sign-in")).failed


# Rights


async def test_shared_servers_are_signed_in_to_by_their_editors(held: SigningOffice) -> None:
    assert not (await held.ask(ADD, OPERATOR)).failed
    server = held.record.id
    for config in (held.record.config, WEB):
        held.sign_ins.takes.add(config.id)
        held.servers.states = [ServerSnapshot(config, ServerStatus.AUTH_REQUIRED, PROBLEM)]
        held.sign_ins.signed_in[config.id] = SignInInfo("slack:U7", NOW, LOGIN)
        for line in ("connect", "secret set", "secret rotate", "secret clear"):
            slot = " sign-in" if "secret" in line else ""
            reply = await held.ask(f"mcp {line} {config.name}{slot}", ADMIN)
            assert reply.failed, line
            assert "countersign servers" in reply.text
        assert config.id in held.sign_ins.signed_in
        assert "Sign in to" in (await held.ask(f"mcp connect {config.name}", OPERATOR)).text
    assert [each.server for each in held.sign_ins.begun] == [server, WEB.id]


async def test_without_a_public_address_it_names_the_missing_setting() -> None:
    off = CommandHarness(two_servers())
    await off.ask(ADD)
    off.servers.states.append(ServerSnapshot(off.record.config, ServerStatus.AUTH_REQUIRED, PROBLEM))
    off.servers.states = [state for state in off.servers.states if state.status is not ServerStatus.CONNECTED]
    reply = await off.refusal("mcp connect jira")
    assert "PUBLIC_URL" in dict(reply.details)["by a browser"]
    assert "PUBLIC_URL" in dict((await off.ask("mcp show jira")).details)["by a browser"]
    for line in ("mcp secret rotate jira sign-in", "mcp secret set jira sign-in"):
        refusal = await off.refusal(line)
        assert "`PUBLIC_URL`" in refusal.text
