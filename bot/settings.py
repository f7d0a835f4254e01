"""Everything that comes from the environment, in one class. Read by the composition root and the command line only.

Names are the contract of docs/configuration.md. `.env` in the working folder is read too; the environment wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bot.domain.approvals import ApprovalPolicy
from bot.domain.servers import ConnectPolicy
from bot.errors import SettingsError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_DAYS = 366
_LONGEST_SHOWN = 60


def _seconds(value: Any) -> Any:
    """`90`, `60s`, `30m`, `24h` or `2d` in seconds; `never` is None."""
    if not isinstance(value, str):
        return value
    if value.lower() == "never":
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)", value.lower())
    if match is None:
        raise ValueError("write a number and a unit, such as 60s, 30m or 24h, or never")
    seconds = float(match[1]) * _UNITS[match[2]]
    if not 0 < seconds <= _LONGEST_DAYS * _UNITS["d"]:
        raise ValueError(f"it must be more than 0 and at most {_LONGEST_DAYS}d, or never")
    return seconds


def _names(value: Any) -> Any:
    """A comma-separated list of `platform:id`."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z-]+:\S+", name):
            raise ValueError(f"{name!r} is not of the form platform:id, such as slack:U123 or console:ana")
    return frozenset(names)


def _words(value: Any) -> Any:
    """A comma-separated list."""
    if not isinstance(value, str):
        return value
    return frozenset(word.strip() for word in value.split(",") if word.strip())


def _snowflakes(value: Any) -> Any:
    """A comma-separated list of Discord's ids, which are numbers."""
    ids = _words(value)
    for each in ids:
        if not re.fullmatch(r"[0-9]{1,20}", each):
            raise ValueError(f"{each!r} is not an id: switch on Developer Mode in Discord and copy the server's id")
    return ids


def _hosts(value: Any) -> Any:
    """A comma-separated list of `host` or `host:port`."""
    hosts = _words(value)
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?", host):
            raise ValueError(f"{host!r} is not a host or host:port")
    return frozenset(host.lower() for host in hosts)


def _address(value: str) -> str:
    """An http or https address. What is wrong with one is told without repeating it: it may hold a password."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", value):
        raise ValueError("write an address such as https://host/v1")
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


Duration = Annotated[float | None, BeforeValidator(_seconds)]
Principals = Annotated[frozenset[str], NoDecode, BeforeValidator(_names)]
Words = Annotated[frozenset[str], NoDecode, BeforeValidator(_words)]
Snowflakes = Annotated[frozenset[str], NoDecode, BeforeValidator(_snowflakes)]
Hosts = Annotated[frozenset[str], NoDecode, BeforeValidator(_hosts)]
Address = Annotated[str, AfterValidator(_address)]
AnyCase = BeforeValidator(_lower)


class Settings(BaseSettings):
    """The environment, checked."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore", frozen=True
    )

    # Addresses may hold passwords: like keys, they are not shown.
    database_url: str = Field("sqlite:///data/countersign.db", repr=False)
    auto_migrate: bool = True
    retention_days: Annotated[float, Field(gt=0)] = 30.0

    bot_model: str = ""
    openai_api_key: SecretStr | None = None
    openai_base_url: Address | None = Field(None, repr=False)
    openai_api: Annotated[Literal["auto", "chat"], AnyCase] = "auto"
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: Address | None = Field(None, repr=False)

    slack_bot_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_api_url: Address = Field("https://slack.com/api/", repr=False)
    slack_follow_threads: bool = True
    slack_guests: bool = False
    slack_strangers: bool = False
    slack_streaming: Annotated[Literal["nowhere", "direct", "everywhere"], AnyCase] = "direct"

    discord_token: SecretStr | None = None
    discord_servers: Snowflakes = frozenset()
    discord_follow_threads: bool = True
    discord_api_url: Address = Field("https://discord.com/api/v10", repr=False)

    web_host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080

    mcp_enabled: bool = True
    mcp_servers_file: Path = Path("config/mcp_servers.json")
    mcp_connect_policy: Annotated[ConnectPolicy, AnyCase] = ConnectPolicy.AUTO
    mcp_sync_interval: Duration = 300.0
    mcp_encryption_key: SecretStr | None = None
    encryption_master_password: SecretStr | None = None
    mcp_secret_variables: Words = frozenset({"MCP_SECRET_*"})
    mcp_secret_folder: Path = Path("/run/secrets")
    mcp_allowed_hosts: Hosts = frozenset()
    mcp_allowed_commands: Words = frozenset()
    mcp_allowed_servers: Words = frozenset()
    mcp_approval_default_policy: Annotated[ApprovalPolicy | None, BeforeValidator(_upper)] = None
    mcp_approval_timeout: Duration = 1800.0
    policy_file: Path = Path("config/policy.toml")
    system_prompt_file: Path = Path("config/system_prompt.md")

    admins: Principals = frozenset()
    approvers: Principals = frozenset()

    log_level: Annotated[Literal["debug", "info", "warning", "error"], AnyCase] = "info"
    log_format: Annotated[Literal["auto", "text", "json"], AnyCase] = "auto"

    @property
    def secrets(self) -> frozenset[str]:
        """Every value here that must never be shown: keys, and the database's password."""
        keys = (value.get_secret_value() for _, value in self if isinstance(value, SecretStr))
        password = urlsplit(self.database_url).password or ""
        return frozenset(filter(None, (*keys, password, unquote(password))))

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        # A line break behind a key, as secrets from files often have, would make it another key.
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
        return {name: value for name, value in stripped.items() if value != ""}


def read_environment() -> dict[str, str]:
    """Every variable there is, those of .env included, for what the operator's files refer to. Call it after
    `read_settings`, which says what is wrong with .env.
    """
    written = dotenv_values(".env", encoding="utf-8")
    return {**{name: value for name, value in written.items() if value is not None}, **os.environ}


def read_settings(**overrides: Any) -> Settings:
    """Read the environment. `overrides` (from the command line) win.

    Raises SettingsError that names every variable which cannot be used, never the value of one that may be secret.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = "; ".join(_problem(str(each["loc"][0]), each["msg"], each["input"]) for each in error.errors())
        raise SettingsError(f"The environment cannot be used: {problems}.", "correct it there or in .env") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f".env cannot be read: {error}.", "save it as UTF-8 text, or remove it") from error


def _problem(name: str, said: str, value: Any) -> str:
    said = said.removeprefix("Value error, ")
    if name.endswith(("_key", "_url", "_password", "_token", "_secret")):
        return f"{name.upper()}: {said}"
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
    return f"{name.upper()} is {shown}: {said[0].lower()}{said[1:]}"
