"""Name, keys, address and retry delay of a service."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

from bot.errors import ModelBarred, ModelUnavailable, SettingsError
from bot.i18n import use_language
from bot.llm import openai_chat
from bot.llm.provider_service import ProviderError, Service, retry_after
from tests.llm.conversation import events

OLD_WAYS = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""The transport of the vendors' libraries hands a proxy's password over in a way that is deprecated."""
HOME = "https://api.vendor.example/v1"


def unknown_name(*_: object, **__: object) -> None:
    """Resolve names as a network that knows none."""
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def service(base_url: str | None = None, key: str = "sk-0123456789") -> Service:
    return Service.for_model(HOME, base_url, vendor="Vendor", prefix="VENDOR", model="m", key=key)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        (None, True),
        ("", True),
        ("https://api.vendor.example/v1", True),
        ("https://eu.api.vendor.example/v1", True),
        ("http://localhost:11434/v1", False),
        ("https://api.vendor.example.org/v1", False),
        ("https://example.org/api.vendor.example", False),
        ("https://notapi.vendor.example/v1", False),
    ],
)
def test_the_vendors_own_address_is_recognised(address: str | None, own: bool) -> None:
    assert service(address).own_address is own


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (None, "Vendor"),
        ("http://localhost:11434/v1", "The model service at localhost:11434"),
        ("https://user:secret@models.example.org/v1?key=secret", "The model service at models.example.org"),
    ],
)
def test_a_service_is_named_without_secrets_of_its_address(address: str | None, name: str) -> None:
    assert service(address).name == name
    assert "secret" not in str(service(address).error_from(ProviderError(404)))


@pytest.mark.parametrize(
    "address",
    ["localhost:11434", "ftp://example.org", "http://", "http://[::1", "http://h:99999", "http://h:0", "nonsense"],
)
def test_an_address_that_is_none_is_a_setting_to_correct(address: str) -> None:
    with pytest.raises(SettingsError, match="VENDOR_BASE_URL"):
        service(address)


@pytest.mark.parametrize("key", ["sk-with\nnewline", "sk-ключ", "sk-\x00"])
def test_a_key_that_cannot_be_sent_is_a_setting_to_correct(key: str) -> None:
    with pytest.raises(SettingsError, match="VENDOR_API_KEY") as caught:
        service(key=key)
    assert key not in str(caught.value)


def test_space_around_a_key_is_no_part_of_it() -> None:
    assert service(key=" sk-0123456789\n").key == "sk-0123456789"


def test_a_service_does_not_show_its_key() -> None:
    assert "sk-0123456789" not in repr(service())


@pytest.mark.parametrize("status", [401, 402, 403, 404])
@pytest.mark.parametrize("place", ["http://10.1.2.3:8000/v1", "10.1.2.3:8000", "[2001:db8::1]:80", "h.example.org"])
def test_an_error_for_the_operator_shows_no_address_and_no_key_and_promises_nothing(status: int, place: str) -> None:
    error = service("https://h.example.org/v1").error_from(ProviderError(status, f"Not at {place} with sk-0123456789"))
    assert isinstance(error, ModelBarred)
    assert place not in str(error)
    assert "sk-0123456789" not in str(error)
    assert "again" not in str(error)


def test_a_date_without_a_zone_is_in_universal_time() -> None:
    at = (datetime.now(UTC) + timedelta(seconds=60)).strftime("%a, %d %b %Y %H:%M:%S -0000")
    seconds = retry_after({"retry-after": at})
    assert seconds is not None
    assert 50 < seconds <= 60


def test_a_date_that_has_passed_asks_for_no_wait() -> None:
    assert retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0.0


def test_without_a_key_there_is_none_to_take_out() -> None:
    said = service(key="").error_from(ProviderError(400, "none of the above"))
    assert "none of the above" in str(said)


@pytest.mark.parametrize(("words", "end"), [("Overloaded", "Overloaded."), ("Wait.", "Wait."), ("Why?", "Why?")])
def test_the_message_of_a_service_ends_before_the_fix(words: str, end: str) -> None:
    assert str(service().error_from(ProviderError(503, words))).endswith(f": {end} Fix: Ask again in a while.")


def test_people_read_in_their_language_why_there_is_no_answer() -> None:
    busy = service("http://localhost:11434/v1").error_from(ProviderError(429, "Slow down"))
    away = service().unreachable(ConnectionRefusedError())
    with use_language("ja"):
        assert str(busy) == (
            "localhost:11434 のモデルサービスへの問い合わせが多すぎます（429）: Slow down. "
            "対処: しばらくしてから、もう一度お試しください。"
        )
        assert str(busy.brief) == "localhost:11434 のモデルサービスへの問い合わせが多すぎます（429）。"
        assert str(away) == "Vendorに接続できません: 接続が拒否されました。 対処: ネットワークを確認してください。"
    assert str(away) == "Vendor cannot be reached: connection refused. Fix: Check the network."


@OLD_WAYS
@pytest.mark.parametrize(("variable", "scheme"), [("HTTPS_PROXY", "https"), ("http_proxy", "http")])
async def test_a_proxy_that_wants_a_password_is_named_without_the_one_it_has(
    variable: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        monkeypatch.setenv(variable, f"http://sam:hunter-two@127.0.0.1:{port}")
        model = openai_chat.create(openai_chat.Config("m", "sk-0123456789", base_url=f"{scheme}://models.example/v1"))
        with pytest.raises(
            ModelUnavailable, match=f"cannot be reached through the proxy.* Check {variable},"
        ) as caught:
            await events(model)
        await model.close()
    assert "hunter" not in f"{caught.value} {caught.value!r}"


@OLD_WAYS
@pytest.mark.parametrize("proxy", ["127.0.0.1:9", "unknown.example:3128"])
async def test_an_unreachable_proxy_is_reported(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown_name)
    monkeypatch.setenv("HTTPS_PROXY", f"http://sam:hunter-two@{proxy}")
    model = openai_chat.create(openai_chat.Config("m", "sk-0123456789", base_url="https://models.example/v1"))
    with pytest.raises(ModelUnavailable, match="cannot be reached through the proxy"):
        await events(model)
    await model.close()
