"""The web part of `countersign run` as a program: its start, authentication and shutdown."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bot.app.service import run
from bot.errors import SettingsError
from bot.settings import read_settings
from tests.app.program import Service, program, service

TOKEN = "the-operators-own-token-Zk29vT4x"
OPEN = ("/healthz", "/readyz", "/health", "/metrics", "/openapi.json", "/docs")
"""Routes without authentication. The last two are switched on by the operator."""


def port_of(running: Service) -> int:
    running.says("listening for requests")
    match = re.search(rb"listening for requests at 127\.0\.0\.1, port (\d+)", bytes(running.log))
    assert match is not None
    return int(match[1])


def ask(port: int, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_operators_token_brings_the_api_and_one_made_beside_it_is_good_at_once(folder: Path) -> None:
    with service(folder, ADMIN_API_TOKEN=TOKEN, PORT="0", API_DOCS="true", LOG_LEVEL="debug") as running:
        running.says("web, worker running on model demo")
        port = port_of(running)
        assert [ask(port, path)[0] for path in OPEN] == [200] * len(OPEN)
        assert [ask(port, path)[0] for path in ("/", "/api", "/api/nothing", "/healthz/x")] == [401] * 4
        assert ask(port, "/api/nothing", TOKEN)[0] == 404
        made = program(folder, "tokens", "create", "ci", "--role", "member")
        assert (made.returncode, ask(port, "/api/nothing", made.stdout.strip())[0]) == (0, 404)
        assert program(folder, "tokens", "revoke", "ci").returncode == 0
        assert ask(port, "/api/nothing", made.stdout.strip())[0] == 401
        assert json.loads(ask(port, "/openapi.json")[1])["info"]["title"] == "Countersign"
        assert "<h1>Countersign" in ask(port, "/docs")[1]
        doctor = program(folder, "doctor", ADMIN_API_TOKEN=TOKEN, PORT=str(port))
        assert f"✓ web · address  A running bot answers at 127.0.0.1, port {port}." in doctor.stdout
        assert running.end(signal.SIGTERM) == 0
    log = "\n".join(running.lines)
    assert TOKEN not in log
    assert made.stdout.strip() not in log
    assert not [line for line in running.lines if json.loads(line)["level"] in ("warning", "error")]


def test_the_web_part_alone_answers_even_before_the_first_token(folder: Path) -> None:
    with service(folder, "--only", "web", PORT="0") as running:
        running.says("web running on model demo")
        port = port_of(running)
        status, said = ask(port, "/api/nothing", "x")
        assert (status, "countersign tokens create" in said) == (401, True)
        assert ask(port, "/openapi.json")[0] == 401, "nothing says what there is unless the operator wants it"
        assert running.end(signal.SIGTERM) == 0


def test_settings_may_name_programs_as_they_name_people() -> None:
    settings = read_settings(admins="api:deploy", approvers="slack:U1, api:night, api-role:approver")
    assert settings.admins == {"api:deploy"}
    assert settings.approvers == {"slack:U1", "api:night", "api-role:approver"}


@pytest.mark.parametrize(
    "token", ["x" * 32, "a-token-of-words", "a token with blanks in it", "a-tøken-of-another-language"]
)
async def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused_at_the_start(token: str, folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"ADMIN_API_TOKEN (has|can be guessed)") as caught:
        await run(read_settings(admin_api_token=token))
    assert caught.value.fix
    assert token not in str(caught.value)
    assert not (folder / "data").exists()
