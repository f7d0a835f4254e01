"""The operator's file of secret grants: its grants, and the errors of entries that grant nothing."""

from __future__ import annotations

import pytest

from bot.domain.secrets import SecretReference
from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport, TemplateLaunch, Transport
from bot.engine.config_files import describe_grant, read_secret_grants

FILE = """
[[grant]]
secret = "env:MCP_SECRET_JIRA"
workspaces = ["slack:T1", "discord:42"]
hosts = ["Jira.example", "jira.example:8443", "[2001:db8::1]:444", "http://127.0.0.1:80"]

[[grant]]
secret = "file:/run/secrets/git"
workspaces = ["slack:T1"]
templates = ["git"]
"""
JIRA, GIT = SecretReference.parse("env:MCP_SECRET_JIRA"), SecretReference.parse("file:/run/secrets/git")


def server(transport: Transport | str, workspace: str = "slack:T1") -> ServerConfig:
    there = HttpTransport(transport) if isinstance(transport, str) else transport
    return ServerConfig("x", there, id="id", workspace=workspace)


@pytest.mark.parametrize(
    ("reference", "config", "granted"),
    [
        (JIRA, server("https://jira.example/mcp"), True),
        (JIRA, server("https://JIRA.example:443/other"), True),
        (JIRA, server("https://jira.example:8443/mcp", "discord:42"), True),
        (JIRA, server("https://[2001:db8::1]:444/mcp"), True),
        (JIRA, server("http://127.0.0.1/mcp"), True),
        (JIRA, server("http://jira.example:443/mcp"), False),
        (JIRA, server("https://jira.example:444/mcp"), False),
        (JIRA, server("https://sub.jira.example/mcp"), False),
        (JIRA, server("https://jira.example@evil.example/mcp"), False),
        (JIRA, server("https://jira.example/mcp", "slack:T2"), False),
        (JIRA, server("https://jira.example/mcp", ""), False),
        (JIRA, server(StdioTransport("", launch=TemplateLaunch("git", {}))), False),
        (GIT, server(StdioTransport("", launch=TemplateLaunch("git", {}))), True),
        (GIT, server(StdioTransport("git")), False),
        (GIT, server("https://jira.example/mcp"), False),
        (
            SecretReference.parse("file:/run/secrets/../secrets/git"),
            server(StdioTransport("", launch=TemplateLaunch("git"))),
            False,
        ),
    ],
)
def test_a_grant_is_for_exactly_one_secret_and_the_places_it_names(
    reference: SecretReference, config: ServerConfig, *, granted: bool
) -> None:
    grants = read_secret_grants(FILE, "grants.toml")
    assert grants.problems == ()
    assert (grants.objection(reference, config) == ("", "")) is granted


def test_a_grant_is_explained_with_its_line() -> None:
    grants = read_secret_grants(FILE, "grants.toml")
    assert [grant.line for grant in grants.grants] == [2, 7]
    assert describe_grant(grants.grants[1]) == (
        "file:/run/secrets/git is granted to servers of slack:T1 at launch template git."
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('secret = "hunter2"\nworkspaces = ["slack:T1"]\nhosts = ["a.example"]', "'secret' is not a reference"),
        ('secret = "env:A"\nhosts = ["a.example"]', "names no workspace"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]', "names no host and no launch template"),
        ('secret = "env:A"\nworkspaces = ["slack:*"]\nhosts = ["a.example"]', "Patterns are not allowed"),
        ('secret = "env:A"\nworkspaces = ["*"]\nhosts = ["a.example"]', "is not a workspace"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]\nhosts = ["*.example"]', "is not a host"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]\nhosts = ["https://a.example/mcp"]', "is not a host"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]\nhosts = ["a.example:0"]', "port"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]\nhosts = "a.example"', "is not a list of texts"),
        ('secret = "env:A"\nworkspaces = ["slack:T1"]\nhost = ["a.example"]', "'host' is not a known key"),
    ],
)
def test_an_entry_that_cannot_be_used_grants_nothing_and_the_others_hold(entry: str, said: str) -> None:
    grants = read_secret_grants(f"{FILE}\n[[grant]]\n{entry}\n", "grants.toml")
    assert len(grants.grants) == 2
    (problem,) = grants.problems
    assert problem.line == 12
    assert said in problem.cause
    assert problem.fix
    assert "hunter2" not in problem.sentence


def test_a_file_that_is_no_toml_grants_nothing_and_names_the_line() -> None:
    grants = read_secret_grants(f"{FILE}\n[[grant\n", "grants.toml")
    assert grants.grants == ()
    assert grants.problems[0].line == 12
