"""Variables of the machine: proxies, certificates, the time zone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.domain import locales
from bot.domain.locales import machine_time_zone
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
        ("http://11.1.2.3", EVERYWHERE | {"NO_PROXY": f"[,[::1]:5,10.0.0.0/99,*.,:,a:{'1' * 5_000}"}, Q),
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
        ("HTTPS_PROXY", "none"),
        ("HTTPS_PROXY", "false"),
        ("HTTPS_PROXY", "DIRECT"),
        ("HTTPS_PROXY", "3128"),
        ("HTTPS_PROXY", "${PROXY}"),
        ("HTTPS_PROXY", "http://$PROXY:1"),
        ("HTTPS_PROXY", "http://*:1"),
        ("HTTPS_PROXY", "http://..:1"),
        ("HTTPS_PROXY", "http:/h:1"),
        ("HTTPS_PROXY", "http://p.example/proxy.pac"),
        ("HTTPS_PROXY", "http://p.example:1 http://q.example:1"),
        ("HTTPS_PROXY", f"http://{'h' * 300}:1"),
        ("HTTPS_PROXY", f"http://{'h.' * 200}example:1"),
        ("HTTPS_PROXY", "\udcff:1"),
        ("HTTPS_PROXY", "http://1:1"),
        ("HTTPS_PROXY", "http://300.1.1.1:1"),
        ("HTTPS_PROXY", "http://sam:пароль@p.example:1"),
        ("HTTPS_PROXY", "http://sam:%zz%ff@p.example:1"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
        ("SSL_CERT_FILE", "EMPTY"),
        ("SSL_CERT_FILE", "FOLDER"),
        ("SSL_CERT_DIR", "/nowhere/certs"),
        ("SSL_CERT_FILE", "x" * 5_000),
        ("SSL_CERT_DIR", "FOLDER"),
        ("SSL_CERT_DIR", "JUNK"),
        ("SSL_CERT_DIR", "x" * 5_000),
        ("SSLKEYLOGFILE", "/nowhere/keys"),
        ("SSLKEYLOGFILE", "FOLDER"),
        ("TZ", "JST-9"),
        ("TZ", "x" * 5_000),
        ("TZ", "/etc/passwd"),
        ("TZ", "EST5EDT,M3.2.0,M11.1.0"),
        ("TZ", "Asia"),
    ],
)
def test_a_variable_that_cannot_be_used_is_one_sentence_that_names_it(
    variable: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "0a1b2c3d.0").write_text("no certificate")
    value = str(tmp_path / value.lower()) if value in ("EMPTY", "FOLDER", "JUNK") else value
    (problem,) = machine_problems({variable: value})
    assert problem.cause.startswith(variable)
    assert variable in problem.fix
    assert len(problem.cause) < 300


def test_variables_that_can_be_used_are_no_problem() -> None:
    environment = {"HTTPS_PROXY": "p:3128", "SSL_CERT_FILE": AUTHORITY, "TZ": ":Asia/Tokyo"}
    assert list(machine_problems(environment | {"SSL_CERT_DIR": "", "HTTP_PROXY": ""})) == []
    assert list(machine_problems({"TZ": "JST-9", "TIME_ZONE": "Asia/Tokyo"})) == []


@pytest.mark.parametrize(
    "zone",
    [":/etc/localtime", "/usr/share/zoneinfo/Asia/Tokyo", ":/usr/share/zoneinfo/Asia/Tokyo", "posix/Asia/Tokyo"],
)
def test_a_zone_may_be_a_file_as_for_the_c_library(zone: str) -> None:
    assert list(machine_problems({"TZ": zone})) == []
    assert ("Tokyo" in zone) == (machine_time_zone({"TZ": zone}) == "Asia/Tokyo")


def test_the_zone_in_place_of_an_unknown_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = tmp_path / "localtime"
    clock.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    monkeypatch.setattr(locales, "_LOCAL_TIME", clock)
    (problem,) = machine_problems({"TZ": "JST-9"})
    assert "times are in Asia/Tokyo without TIME_ZONE" in problem.cause


def test_folders_of_certificates_are_a_list_as_for_openssl(tmp_path: Path) -> None:
    (tmp_path / "0a1b2c3d.0").symlink_to(AUTHORITY)
    (tmp_path / "0a1b2c3d.1").write_text("no certificate")
    assert list(machine_problems({"SSL_CERT_DIR": f"/nowhere{os.pathsep}{tmp_path}"})) == []


@pytest.mark.parametrize(
    "proxy", ["p:1", "p.example", "http://p", "http://u:p%40w@p:1/", "HTTP://P:1", "https://[::1]:1", "http://a_b:1"]
)
def test_proxies_are_addresses_of_a_host(proxy: str) -> None:
    assert list(machine_problems({"HTTPS_PROXY": proxy})) == []


@pytest.mark.parametrize("url", ["https://[::1", "https://a.example:99999", "https://a.example:port"])
def test_a_url_that_is_no_address_is_an_error_for_people(url: str) -> None:
    with pytest.raises(SettingsError, match="no valid address"):
        find_proxy(url, EVERYWHERE)


@pytest.mark.parametrize("zone", ["Asia", "/etc/passwd", "JST-9"])
def test_no_zone_of_the_machine_keeps_the_program_from_loading(zone: str) -> None:
    subprocess.run((sys.executable, "-c", "import bot.i18n"), env={**os.environ, "TZ": zone}, check=True, timeout=60)


def test_chat_and_doctor_go_on_where_they_need_no_such_variable_and_name_it_where_they_do(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    bad = {
        "ALL_PROXY": "socks://127.0.0.1:1",
        "SSL_CERT_FILE": "/nowhere/ca.pem",
        "SSLKEYLOGFILE": "/nowhere/keys",
        "TZ": "JST-9",
    }
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
        assert len(said.err.splitlines()) == len(bad)
    with subtests.test("certificates"):
        remote.environment["ALL_PROXY"] = ""
        said = remote.chat("-m", "Hello")
        assert (said.code, said.err.count("SSL_CERT_FILE is")) == (2, 1)
        remote.environment |= bad
    with subtests.test("the doctor"):
        remote.environment |= {"ALL_PROXY": "", "DISCORD_TOKEN": "MTIz.abc.defghijklmnopqrstuvwxyz0123456789"}
        said = remote.countersign("doctor")
        (line,) = (line for line in said.out.splitlines() if line.startswith("✗ discord"))
        assert line.startswith("✗ discord · check  SSL_CERT_FILE is ")
        assert line.count("Fix:") == 1
        assert "Traceback" not in said.err
        remote.environment |= bad | {"DISCORD_TOKEN": ""}
        said = remote.countersign("doctor")
        assert said.code == 1
        lines = said.out.splitlines()
        assert all(any(line.startswith(f"! settings · machine  {name} ") for line in lines) for name in bad)
        assert any(line.startswith("✗ model · openai:m  ALL_PROXY") for line in lines)
        assert any(line.startswith("✓ database · written") for line in lines)
