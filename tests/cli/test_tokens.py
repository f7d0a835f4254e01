"""`countersign tokens`: create, list and revoke tokens, which are printed once. The doctor's lines on the web part."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from tests.cli.invocation import Countersign


def test_a_token_is_printed_alone_to_standard_output_and_never_again(countersign: Countersign, folder: Path) -> None:
    made = countersign("tokens", "create", "ci", "--role", "approver", "--workspace", "slack:T1", "--expires", "90d")
    assert made.code == 0
    assert re.fullmatch(r"cs_[A-Za-z0-9_-]{43}\n", made.out)
    assert re.search(
        r"^The token ci is good for slack:T1 until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, as approver\.",
        made.err,
        re.MULTILINE,
    )
    assert made.out.strip() not in made.err
    for words in (("tokens", "list"), ("tokens", "list", "--json"), ("audit", "export")):
        assert made.out.strip() not in countersign(*words).out
    database = b"".join(path.read_bytes() for path in (folder / "data").iterdir())
    assert b"approver" in database
    assert made.out.strip().encode() not in database


def test_tokens_are_listed_with_their_facts(countersign: Countersign) -> None:
    assert "There are no tokens" in countersign("tokens", "list").err
    countersign("tokens", "create", "night", "--role", "member")
    countersign("tokens", "create", "ci", "--role", "admin", "--expires", "12h")
    assert countersign("tokens", "revoke", "night").code == 0
    head, ci, night = countersign("tokens", "list").out.splitlines()
    assert head.split() == ["NAME", "ROLE", "WORKSPACE", "MADE", "STATE"]
    assert re.search(r"^ci +admin +all +\S+ by console:\S+ +good until \S+$", ci)
    assert re.search(r"^night +member +all +\S+ by console:\S+ +revoked \S+$", night)
    listed = json.loads(countersign("tokens", "list", "--json").out)
    assert [(entry["name"], entry["role"], entry["workspace"], entry["revokedAt"] is None) for entry in listed] == [
        ("ci", "admin", "", True),
        ("night", "member", "", False),
    ]


def test_a_name_is_free_again_when_its_token_is_revoked(countersign: Countersign) -> None:
    countersign("tokens", "create", "ci", "--role", "member")
    taken = countersign("tokens", "create", "ci", "--role", "member")
    assert taken.complaint == "A token named ci already exists. Fix: revoke it first, or take another name"
    assert countersign("tokens", "revoke", "ci").code == 0
    again = countersign("tokens", "revoke", "ci")
    assert (again.code, again.complaint) == (1, "There is no token 'ci' to revoke. Fix: see `countersign tokens list`")
    assert countersign("tokens", "create", "ci", "--role", "member").code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("admin", "--role", "admin"), "'admin' is reserved for ADMIN_API_TOKEN."),
        (("C I", "--role", "admin"), "'C I' cannot be the name of a token."),
        (("ci", "--role", "admin", "--workspace", "T1"), "'T1' is no workspace."),
        (("ci", "--role", "admin", "--expires", "0d"), "--expires is '0d', which is no time."),
        (("ci", "--role", "admin", "--expires", "soon"), "--expires is 'soon', which is no time."),
        (("ci", "--role", "boss"), "Invalid value for '--role'"),
        (("ci",), "Missing option '--role'"),
    ],
)
def test_an_invalid_token_request_is_refused_with_its_fix(
    countersign: Countersign, words: tuple[str, ...], complaint: str
) -> None:
    ended = countersign("tokens", "create", *words)
    assert ended.code == 2
    assert ended.complaint.startswith(complaint)
    assert "Fix:" in ended.complaint


def test_the_doctor_looks_at_the_web_part_only_where_it_is_wanted(countersign: Countersign) -> None:
    assert " web " not in countersign("doctor").out
    ended = countersign("doctor", ADMIN_API_TOKEN="x" * 15, PUBLIC_URL="http://bot.example", PORT="0")
    lines = [line for line in ended.out.splitlines() if " web · " in line]
    assert ended.code == 1
    token, address, public = lines
    assert token.startswith("✗ web · token  ADMIN_API_TOKEN can be guessed: it is easy to guess. Fix: make one with")
    assert address == "✓ web · address  127.0.0.1, port 0, is free."
    assert public.startswith(
        "! web · public address  PUBLIC_URL is not https: what is typed on its pages could be read"
    )


def test_the_doctor_finds_a_port_that_something_else_uses(countersign: Countersign) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.listen()
        other.settimeout(20)
        ended = countersign(
            "doctor",
            ADMIN_API_TOKEN="Zk29vT4x-q7Lm-Wb83nR5y",
            PUBLIC_URL="https://user:hunter2@bot.example/x",
            PORT=str(port),
        )
    lines = [line for line in ended.out.splitlines() if " web · " in line]
    assert [line[0] for line in lines] == ["✓", "✗", "✓"]
    assert f"port {port}: Address already in use." in lines[1]
    assert lines[2] == "✓ web · public address  Links begin with https://bot.example."
    assert "hunter2" not in ended.out
