"""Arguments of `/mcp add` without options: an address, a command line, a name."""

from __future__ import annotations

import pytest

from bot.admin.servers.definition import derived_name
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, command_harness


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://mcp.linear.app/mcp", "linear"),
        ("https://tickets.example.com/mcp", "example"),
        ("https://api.githubcopilot.com/mcp/", "githubcopilot"),
        ("https://desk.example.co.uk/mcp", "example"),
        ("https://mcp.app/mcp", "mcp"),
        ("http://127.0.0.1:8123/mcp", ""),
        ("http://localhost/mcp", ""),
    ],
)
def test_a_host_names_its_server(url: str, name: str) -> None:
    assert derived_name(url, ()) == name


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /srv", "filesystem"),
        ("npx @playwright/mcp@latest", "playwright"),
        ("npx --package=@upstash/context7-mcp context7", "context7"),
        ("uvx mcp-server-git@1.0", "git"),
        ("uv tool run mcp_server_time==1.0", "time"),
        ("uvx some[extra]==1.0", "some"),
        ("python -m my_server", "my"),
        ("/opt/desk/serve.py --port 1", "serve"),
        ("server", "server"),
    ],
)
def test_a_package_or_program_names_its_server(line: str, name: str) -> None:
    assert derived_name("", line.split()) == name


@pytest.mark.parametrize(
    ("line", "name", "title"),
    [
        ("https://mcp.linear.app/mcp", "linear", ""),
        ("desk https://mcp.linear.app/mcp --title Help", "desk", "Help"),
        ("Help_desk https://mcp.linear.app/mcp", "help-desk", "Help_desk"),
        ("--title Help_desk https://mcp.linear.app/mcp", "help-desk", "Help_desk"),
    ],
)
async def test_an_address_needs_no_option_and_no_name(held: CommandHarness, line: str, name: str, title: str) -> None:
    reply = await held.ask(f"mcp add {line} --no-verify", ADMIN)
    assert reply.text == f"`{name}` is added."
    record = held.record
    assert (record.config.name, record.config.title) == (name, title)
    assert "https://mcp.linear.app/mcp" in dict(reply.details).values()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x https://a.example/mcp https://b.example/mcp", "One address at a time"),
        ("x https://a.example/mcp --url https://b.example/mcp", "given twice"),
        ("x --command y -- z", "`--` and `--command` are the same"),
        ("x --", "After `--` follow a program"),
        ("x --arg y", "`--arg` goes with `--command`."),
        ("x https://a.example/mcp --only y", "`--only` goes with `--file`."),
        ("https://10.0.0.1/mcp", "What is it called?"),
    ],
)
async def test_an_invalid_source_is_explained(held: CommandHarness, line: str, said: str) -> None:
    reply = await held.refusal(f"mcp add {line}", OPERATOR)
    assert said in " ".join((reply.text, *dict(reply.details).values()))
    assert not held.store.entries


async def test_a_server_of_a_package_is_edited_by_a_new_command_line(held: CommandHarness) -> None:
    held.programs.add("npx")
    await held.ask("mcp add files --no-verify -- npx -y pkg@1.0.0 /srv --verbose", OPERATOR)
    reply = await held.ask("mcp edit files --no-verify -- npx -y pkg@1.0.1 /srv", OPERATOR)
    assert "npx -y pkg@1.0.0 /srv --verbose → npx -y pkg@1.0.1 /srv" in dict(reply.details).values()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *(
            (address, "That is no http or https address. Write https://host/path.")
            for address in (
                "wiki htps://wiki.example.com/mcp",
                "wiki ftp://wiki.example",
                "wiki ws://wiki",
                "ftp://wiki.example",
                "wiki https:/wiki",
                "wiki https//wiki/mcp",
                "wiki //wiki.example/mcp",
                "wiki wiki.example.com/mcp",
                "wiki localhost:8000/mcp",
                "wiki localhost",
                "wiki 10.0.0.1",
            )
        ),
        ("wiki.example.com/mcp", "An address begins with https://."),
        ("my wiki https://wiki.example.com/mcp", "A name of several words stands in quotes."),
        ("wiki transport=sse https://wiki.example.com/mcp", "options with `--`, such as `--title TEXT`"),
        ("wiki transport=sse", "An option is written --NAME VALUE."),
        ("wiki nonsense", "an address such as https://host/path, a program behind `--`, or a launch template"),
        ("wiki npx -y pkg", "a program behind `--`"),
    ],
)
async def test_a_wrong_address_or_name_is_said_to_be_just_that(line: str, said: str) -> None:
    reply = await command_harness().refusal(f"mcp add {line}", OPERATOR)
    assert said in " ".join((reply.text, *dict(reply.details).values()))


@pytest.mark.parametrize("verb", ["add x https://a.example/mcp", "edit wiki"])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--transprt sse", "There is no option `--transprt`. Did you mean `--transport`?"),
        ("--trusted maybe", "`maybe` is unknown: `--trusted` is one of `yes`, `no`."),
        ("--trusted=maybe", "`maybe` is unknown: `--trusted` is one of `yes`, `no`."),
        ("--auto-connect nope", "`nope` is unknown: `--auto-connect` is one of `yes`, `no`."),
        ("--sessions persn", "`persn` is unknown: `--sessions` is one of `shared`, `conversation`, `person`."),
        ("--transport websocket", "'websocket' is not valid. One of: streamable_http, stdio, auto, sse, jsonrpc_http."),
        ("--protocol 2025-06-19", "'2025-06-19' is not valid. One of: auto,"),
        ("--tool-words list=stranger", "'stranger' is not valid. One of: own, shared, strangers. Did you mean"),
        ("--tool-timeout soon", "'soon' is not valid. A number of seconds"),
        ("--tool-limit export=soon", "--tool-limit 'soon' is not valid. A number of seconds"),
        ("--arg y", "`--arg` goes with `--command`."),
        ("--connect-retries many", "'many' is not valid. A whole number from 0 to 10."),
    ],
)
async def test_a_wrong_option_or_value_is_named_with_those_there_are(
    held: CommandHarness, verb: str, option: str, said: str
) -> None:
    await held.ask("mcp add wiki https://wiki.example.com/mcp --no-verify", OPERATOR)
    reply = await held.refusal(f"mcp {verb} {option}", OPERATOR)
    assert said in " ".join((reply.text, *(f"{name} {text}" for name, text in reply.details)))


async def test_an_address_is_edited_as_it_is_added(held: CommandHarness) -> None:
    await held.ask("mcp add wiki https://wiki.example.com/mcp --no-verify", OPERATOR)
    reply = await held.ask("mcp edit wiki https://wiki.example.com/v2 --no-verify", OPERATOR)
    assert dict(reply.details)["changed url"] == "https://wiki.example.com/mcp → https://wiki.example.com/v2"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("policy st notes ask", "Did you mean `/mcp policy set`?"),
        ("secret roate notes", "Did you mean `/mcp secret rotate`?"),
        ("review aprove notes", "Did you mean `/mcp review approve`?"),
        ("list --page two", "`--page` is a whole number."),
        ("list --state conected", "Did you mean `connected`?"),
    ],
)
async def test_a_misspelt_word_brings_the_nearest_or_the_form_it_has(line: str, said: str) -> None:
    assert said in (await command_harness().ask(f"mcp {line}", OPERATOR)).text


@pytest.mark.parametrize(("line", "word"), [("policy set notes add maybe", "maybe"), ("policy set notes alow", "alow")])
async def test_a_bad_policy_is_named(line: str, word: str) -> None:
    said = f"`{word}` is unknown: `POLICY` is one of `ask`, `allow`, `deny`, `auto`."
    assert said in (await command_harness().ask(f"mcp {line}", OPERATOR)).text
