"""Variables of the machine: proxies, certificates, the time zone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.errors import SettingsError
from bot.machine import find_proxy, machine_problems
from tests.fakes import AUTHORITY
from tests.stories.installation import Installation

P, Q = "http://p.example:3128", "http://q.example:3128"
EVERYWHERE = {"HTTPS_PROXY": P, "HTTP_PROXY": Q}


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://a.example/x", EVERYWHERE, P),
        ("wss://a.example/x", EVERYWHERE, P),
        ("http://a.example/x", EVERYWHERE, Q),
        ("https://a.example", {"https_proxy": Q, "HTTPS_PROXY": P}, Q),
        ("https://a.example", {"ALL_PROXY": "p.example:3128"}, P),
        ("https://a.example", {"ALL_PROXY": "socks://p.example:1", "HTTPS_PROXY": P}, P),
        ("https://a.example", {"HTTPS_PROXY": "  "}, None),
        ("http://127.0.0.1:8000/mcp", EVERYWHERE, None),
        ("http://[::1]:8000/mcp", EVERYWHERE, None),
        ("http://localhost:11434", EVERYWHERE, None),
        ("https://a.example", EVERYWHERE | {"NO_PROXY": "*"}, None),
        ("https://a.example", EVERYWHERE | {"NO_PROXY": "b.example, .example"}, None),
        ("https://a.example", EVERYWHERE | {"no_proxy": "*.a.example"}, None),
        ("https://aa.example", EVERYWHERE | {"NO_PROXY": "a.example"}, P),
        ("https://a.example", EVERYWHERE | {"NO_PROXY": "a.example:8443"}, P),
        ("https://a.example:8443", EVERYWHERE | {"NO_PROXY": "a.example:8443"}, None),
        ("http://10.1.2.3", EVERYWHERE | {"NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3", EVERYWHERE | {"NO_PROXY": "10.0.0.0/8,,"}, Q),
    ],
)
def test_the_proxy_of_a_url_is_that_of_its_variable(
    url: str, environment: Mapping[str, str], proxy: str | None
) -> None:
    found = find_proxy(url, environment)
    assert (found.url if found else None) == proxy


def test_a_proxy_that_cannot_be_used_is_named_without_its_password() -> None:
    with pytest.raises(SettingsError, match=r"^ALL_PROXY \(socks5://…\) is not") as error:
        find_proxy("https://a.example", {"ALL_PROXY": "socks5://u:secret@p.example:1"})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ALL_PROXY", "socks://p.example:1080"),
        ("HTTPS_PROXY", '"http://p.example:3128"'),
        ("http_proxy", "http://"),
        ("HTTPS_PROXY", "http://p.example:port"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("SSL_CERT_FILE", "EMPTY"),
        ("SSL_CERT_FILE", "FOLDER"),
        ("SSL_CERT_DIR", "/nowhere/certs"),
        ("SSL_CERT_DIR", "FOLDER"),
        ("TZ", "JST-9"),
        ("TZ", "EST5EDT,M3.2.0,M11.1.0"),
        ("TZ", "Asia"),
    ],
)
def test_a_variable_that_cannot_be_used_is_one_sentence_that_names_it(
    variable: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    value = {"EMPTY": str(tmp_path / "empty"), "FOLDER": str(tmp_path / "folder")}.get(value, value)
    (problem,) = machine_problems({variable: value})
    assert problem.cause.startswith(variable)
    assert variable in problem.fix


def test_variables_that_can_be_used_are_no_problem() -> None:
    environment = {"HTTPS_PROXY": "p:3128", "SSL_CERT_FILE": AUTHORITY, "TZ": ":Asia/Tokyo"}
    assert list(machine_problems(environment | {"SSL_CERT_DIR": "", "HTTP_PROXY": ""})) == []
    assert list(machine_problems({"TZ": "JST-9", "TIME_ZONE": "Asia/Tokyo"})) == []


@pytest.mark.parametrize("zone", ["Asia", "/etc/passwd", "JST-9"])
def test_no_zone_of_the_machine_keeps_the_program_from_loading(zone: str) -> None:
    subprocess.run((sys.executable, "-c", "import bot.i18n"), env={**os.environ, "TZ": zone}, check=True, timeout=60)


def test_chat_and_doctor_go_on_where_they_need_no_such_variable_and_name_it_where_they_do(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    bad = {"ALL_PROXY": "socks://127.0.0.1:1", "SSL_CERT_FILE": "/nowhere/ca.pem", "TZ": "JST-9"}
    far = {"BOT_MODEL": "openai:m", "OPENAI_API_KEY": "sk-test-key", "OPENAI_BASE_URL": "https://far.example/v1"}
    near, remote = Installation(tmp_path / "near", {}), Installation(tmp_path / "far", {})
    near.environment |= bad
    remote.environment |= bad | far
    with subtests.test("a model that needs none"):
        said = near.chat("-m", "Hello")
        assert (said.code, said.err.count("ALL_PROXY (socks")) == (0, 1)
    with subtests.test("a model that needs one"):
        said = remote.chat("-m", "Hello")
        assert said.code != 0
        assert all(line.startswith(tuple(f"countersign: {name} " for name in bad)) for line in said.err.splitlines())
        assert "Something broke" not in said.err
    with subtests.test("the doctor"):
        said = remote.countersign("doctor")
        assert said.code == 1
        lines = said.out.splitlines()
        assert all(any(line.startswith(f"! settings · machine  {name} ") for line in lines) for name in bad)
        assert any(line.startswith("✗ model · openai:m  ALL_PROXY") for line in lines)
        assert any(line.startswith("✓ database · written") for line in lines)
