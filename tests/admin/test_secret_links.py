"""One-time links for secrets that cannot be typed: in a private reply, to users who may set the secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from bot.admin.dependencies import CommandDependencies, LinkService
from bot.domain.commands import Form, Reply
from bot.domain.conversations import Author, ConversationKey
from bot.domain.secrets import SecretLink, SecretReference, SecretSource
from bot.domain.servers import AUTH_SECRET
from tests.admin.servers import ADMIN, GUEST, OPERATOR, CommandHarness, two_servers
from tests.fakes.parts import ANA, HALL

ADDRESS = "https://bot.example.com"
ADD = "mcp add jira --url https://jira.example/mcp"
GOOD = {"title": "Jira", "transport": "streamable_http", "where": "https://jira.example/mcp", "auth": "basic"}


@dataclass
class MemoryLinks:
    """Fake `bot.ports.LinkStore` that only makes links. A token is its number."""

    made: list[SecretLink] = field(default_factory=list)

    async def create_link(
        self, server_id: str, slot: str, by: Author, conversation: ConversationKey
    ) -> tuple[SecretLink, str]:
        self.made.append(SecretLink(server_id, slot, by, conversation))
        return self.made[-1], f"{len(self.made):043d}"

    async def find(self, token: str) -> SecretLink | None:
        raise NotImplementedError

    async def use_link(self, token: str) -> SecretLink | None:
        raise NotImplementedError


@dataclass
class Linked(CommandHarness):
    """A harness where links are switched on."""

    links: MemoryLinks = field(default_factory=MemoryLinks)

    @property
    def parts(self) -> CommandDependencies:
        return replace(super().parts, links=LinkService(self.links, ADDRESS))


@pytest.fixture
def held() -> Linked:
    return Linked(two_servers())


async def with_server(held: Linked, *, secret: str = "") -> str:
    """Add `jira`, with a reference to its secret or a link for it, and return the server's id."""
    line = f"{ADD} --auth api_key" + (f" --secret {secret}" if secret else "")
    assert not (await held.ask(line)).failed
    held.links.made.clear()
    return next(iter(held.store.entries))


def address(reply: Reply) -> str:
    assert reply.private
    match = re.search(rf"\]\(({ADDRESS}/secret/\d{{43}})\)", reply.text)
    assert match is not None, reply.text
    return match[1]


async def test_a_server_that_is_added_without_its_secret_waits_for_it_and_a_link_is_given(held: Linked) -> None:
    reply = await held.ask(f"{ADD} --auth api_key")
    assert not reply.failed
    assert reply.text.startswith("`jira` is added, and waits for the secret it signs in with.")
    assert address(reply)
    assert ("address", "https://jira.example/mcp") in reply.details
    record = held.record
    assert str(record.secrets[AUTH_SECRET]) == "stored"
    assert held.store.values == {record.id: {}}
    assert held.links.made == [SecretLink(record.id, AUTH_SECRET, ANA, HALL)]
    assert held.servers.done == []


async def test_a_form_that_is_sent_back_without_a_reference_leads_to_a_link(held: Linked) -> None:
    second = await held.next_form(await held.form("mcp add"), GOOD)
    secret = next(field for field in second.fields if field.name == "secret")
    assert (secret.required, "link" in secret.hint, len(secret.hint) <= 100) == (False, True, True)
    again = await held.next_form(second, {"username": "robot"})
    assert {field.name for field in again.fields if field.error} == {"username"}
    reply = await held.reply_to(again, {"username": ""})
    assert address(reply)
    assert [(link.slot, link.person) for link in held.links.made] == [(AUTH_SECRET, ANA)]


async def test_an_invalid_reference_is_refused_with_and_without_links(held: Linked) -> None:
    reply = await held.refusal(f"{ADD} --auth api_key --secret hunter2")
    assert "hunter2" not in repr(reply)
    second = await held.next_form(await held.form("mcp add"), {**GOOD, "auth": "header"})
    for wrong in ("hunter2", "ghp_" + "a1B2" * 9):
        again = await held.next_form(second, {"secret": wrong})
        assert {field.name for field in again.fields if field.error} == {"secret"}
    assert not held.store.entries
    assert held.links.made == []


@pytest.mark.parametrize("line", [f"{ADD} --auth none", f"{ADD} --secret env:JIRA", ADD])
async def test_a_server_that_needs_nothing_more_is_looked_at_and_gets_no_link(held: Linked, line: str) -> None:
    reply = await held.ask(line)
    assert not reply.failed
    assert held.links.made == []
    assert held.servers.done


@pytest.mark.parametrize(
    ("line", "slot"),
    [
        ("mcp secret set jira auth", "auth"),
        ("mcp secret set jira header:X-Team", "header:X-Team"),
        ("mcp secret rotate jira", "auth"),
        ("mcp secret rotate jira auth", "auth"),
    ],
)
async def test_setting_a_secret_without_a_reference_gives_a_link(held: Linked, line: str, slot: str) -> None:
    server = await with_server(held)
    reply = await held.ask(line)
    assert not reply.failed
    assert address(reply)
    assert "once, for 10 minutes, for you" in reply.text
    assert held.links.made == [SecretLink(server, slot, ANA, HALL)]
    [again] = reply.actions
    assert address(await held.ask(" ".join(again.words))) != address(reply)
    assert held.store.changes == []


async def test_a_server_that_is_to_sign_in_from_now_on_waits_for_its_secret(held: Linked) -> None:
    await held.ask(ADD)
    reply = await held.ask("mcp edit jira --auth header --auth-header X-Key")
    assert reply.text.startswith("`jira` is changed, and waits for the secret it signs in with.")
    assert address(reply)
    assert ("changed auth", "none → header") in reply.details
    record = held.record
    assert str(record.secrets[AUTH_SECRET]) == "stored"
    assert not (await held.ask("mcp edit jira --description Tickets")).failed
    assert len(held.links.made) == 1


async def test_a_user_who_can_type_a_secret_is_asked_for_it_and_gets_no_link(held: Linked) -> None:
    assert not (await held.ask(f"{ADD} --secret env:JIRA", OPERATOR)).failed
    for line in ("mcp secret set jira auth", "mcp add wiki --url https://wiki.example/mcp --auth api_key"):
        assert isinstance(await held.form(line, OPERATOR, hidden_input=True), Form)
    assert held.links.made == []


async def test_a_secret_that_is_kept_elsewhere_is_read_anew_and_gets_no_link(held: Linked) -> None:
    await with_server(held, secret="env:JIRA")
    assert "is set" in (await held.ask("mcp secret rotate jira")).text
    assert held.links.made == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mcp secret set jira env:KEY", "is for `auth` or `header:NAME`"),
        ("mcp secret set notes auth", "is managed in the operator's file"),
        ("mcp secret rotate jira header:X-Team", "has no such secret yet"),
        ("mcp secret set plain auth", "does not sign in"),
    ],
)
async def test_a_secret_that_cannot_be_entered_gets_no_link(held: Linked, line: str, said: str) -> None:
    await with_server(held)
    await held.ask("mcp add plain --url https://plain.example/mcp")
    reply = await held.refusal(line)
    assert said in reply.text
    assert held.links.made == []


async def test_only_users_who_may_set_a_secret_get_a_link(held: Linked) -> None:
    await with_server(held)
    await held.ask("mcp add everywhere --url https://e.example/mcp --secret env:E", OPERATOR)
    for line, member in (("mcp secret set jira auth", GUEST), ("mcp secret set everywhere auth", ADMIN)):
        assert (await held.ask(line, member)).failed
    assert held.links.made == []


async def test_without_links_the_refusal_names_the_setting_for_them() -> None:
    off = CommandHarness(two_servers())
    missing = await off.ask(f"{ADD} --auth api_key")
    errors: Mapping[str, str] = dict(missing.details)
    assert "Its secret is missing" in errors["--secret"]
    await off.ask(f"{ADD} --secret env:JIRA")
    refused = await off.refusal("mcp secret set jira auth")
    assert "`PUBLIC_URL`" in refused.text


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("--auth api_key", "--auth client_credentials --client-id bot"),
        ("--auth client_credentials --client-id bot", "--auth api_key"),
        ("--auth client_credentials --client-id bot", "--auth header --url https://evil.example/mcp"),
    ],
)
async def test_a_secret_that_was_typed_for_one_way_to_sign_in_is_not_taken_for_another(
    held: Linked, first: str, then: str
) -> None:
    assert not (await held.ask(f"{ADD} {first}")).failed
    before = held.record
    held.store.values[before.id][AUTH_SECRET] = "typed"
    held.store.entries[before.id] = replace(before, missing=frozenset())
    reply = await held.ask(f"mcp edit jira {then}")
    assert held.store.values[before.id] == {}
    assert reply.text.startswith("`jira` is changed, and waits for the secret it signs in with.")
    assert address(reply)


async def test_one_that_was_kept_elsewhere_leaves_a_place_that_waits_for_another(held: Linked) -> None:
    await with_server(held, secret="env:JIRA_KEY")
    reply = await held.ask("mcp edit jira --auth client_credentials --client-id bot")
    assert reply.text.startswith("`jira` is changed, and waits for the secret it signs in with.")
    assert address(reply)


@pytest.mark.parametrize("change", ["--client-id robot", "--url https://jira.example/tenant-2/mcp"])
async def test_a_clients_secret_that_was_typed_stays_with_its_client_and_its_address(held: Linked, change: str) -> None:
    await held.ask(f"{ADD} --auth client_credentials --client-id bot")
    before = held.record
    held.store.values[before.id][AUTH_SECRET] = "typed"
    held.store.entries[before.id] = replace(before, missing=frozenset())
    reply = await held.ask(f"mcp edit jira {change}")
    assert "waits for the secret" in reply.text
    assert held.store.values[before.id] == {}
    assert not (await held.ask(f"mcp edit jira {change} --secret env:JIRA")).failed


async def test_a_header_of_a_server_stays_when_it_is_signed_in_to_otherwise(held: Linked) -> None:
    await held.ask(f"{ADD} --auth oauth --client-id bot")
    await held.ask("mcp secret set jira header:X-Team")
    record = held.record
    held.store.entries[record.id] = replace(record, secrets={"header:X-Team": SecretReference(SecretSource.STORED)})
    assert not (await held.ask("mcp edit jira --auth none --url https://jira.example/v2")).failed
