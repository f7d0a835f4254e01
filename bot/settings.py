"""Settings from the environment, for the composition root and the command line only.

Names and syntax are those of docs/configuration.md. The environment wins over `.env`, and both win over the files in
SETTINGS_FOLDER. `bot.folders` says which `.env` counts, and where the files and folders of the defaults are.

An error has the name, the value, the expected form and an example. A value that may be a secret is never repeated.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import quote, unquote, urlsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bot.domain.approvals import ApprovalNotice, ApprovalPolicy
from bot.domain.conversations import ConversationKey
from bot.domain.hosts import is_host, is_this_machine
from bot.domain.locales import close_time_zones, machine_time_zone, time_zone_name
from bot.domain.pins import ReviewPolicy
from bot.domain.policies import TaintMode
from bot.domain.profiles import MOST_TOOL_ROUNDS, ServersEnabled
from bot.domain.secrets import MASK, redact
from bot.domain.servers import ConnectPolicy
from bot.domain.tools import ToolSearch
from bot.domain.turns import ToolReplay
from bot.errors import SettingsError
from bot.folders import DATABASE, HOME_VARIABLE, find_folders
from bot.i18n import DEFAULT_LANGUAGE, installed_languages, resolve_language

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_DAYS = 366
_LONGEST_MODEL_TIMEOUT = 3600
_LARGEST_FILE = 64 * 1024
"""Most bytes that are read of a file in SETTINGS_FOLDER."""
_SHORTEST_USAGE = 32
"""Least days that usage is kept: a monthly limit counts up to 31 days, and clocks may differ."""
_SMALLEST_WINDOW, _LARGEST_WINDOW = 2_000, 100_000_000
_OTHER_NAMES = {
    "mcp_capabilities_cache_ttl": "mcp_sync_interval",
    "mcp_security_allowed_server_names": "mcp_allowed_servers",
}
"""Alternative names, as used by other programs."""

_WITHOUT_EFFECT = {
    "mcp_session_initialization_timeout": "set the key connect_timeout of a server",
    "mcp_security_max_tool_output_length": "remove it: long results are cut for the model, and shown whole as a file",
    "mcp_encryption_algorithm": "remove it: secrets are always encrypted with AES-256-GCM",
}
"""Settings of other programs without an equivalent, and what to do instead."""

SLACK_FEATURES = frozenset({"agent", "commands", "direct", "home"})
"""Features that the Slack app may be made without (`bot.platforms.slack.manifest`)."""
_LONGEST_SHOWN = 60
_SECRET_ENDINGS = ("_key", "_url", "_password", "_token", "_secret")
_RUN = re.compile(r"[A-Za-z0-9_+/=-]{20,}")
_KEY = re.compile(r"[0-9a-fA-F]{32,}|(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z]).*")
"""Run of letters that looks like a key."""
_BY_VALIDATOR = "value_error"
"""Error type of pydantic for an exception of a validator, replaced by a sentence."""
_PREFIX = "Value error, "


def _parse_duration(value: Any) -> Any:
    """Parse `90`, `60s`, `30m`, `24h` or `2d` into seconds, and `never` into None."""
    if not isinstance(value, str):
        return value
    if value.lower() == "never":
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)", value.lower())
    if match is None:
        raise ValueError("write a number and a unit, such as 60s, 30m or 24h, or never")
    seconds = float(match[1]) * _UNITS[match[2]]
    if not 0 < seconds <= _LONGEST_DAYS * _UNITS["d"]:
        raise ValueError(f"write a time of more than 0 and at most {_LONGEST_DAYS}d, or never, such as 30m")
    return seconds


def _parse_duration_or_never(value: Any) -> Any:
    """Parse a duration; `0` means never, too."""
    return None if re.fullmatch(r"0+\s*[smhd]?", str(value).lower()) else _parse_duration(value)


def _parse_session_time(value: Any) -> Any:
    """Parse the time limit of a session in a browser, which always has one."""
    seconds = _parse_duration(value)
    if seconds is None:
        raise ValueError("write a number and a unit, such as 30m, 8h or 7d")
    return seconds


def _parse_model_timeout(value: Any) -> Any:
    """Parse a time limit of a model's reply, at most an hour."""
    seconds = _parse_duration(value)
    if seconds is None or not 1 <= seconds <= _LONGEST_MODEL_TIMEOUT:
        raise ValueError("write a time from 1s to 1h, such as 90s or 10m")
    return seconds


def _check_usage_days(days: float) -> float:
    if not days >= _SHORTEST_USAGE:
        raise ValueError(
            f"write a number of days, at least {_SHORTEST_USAGE}, such as 400: "
            "a month's limits are added up from what is kept"
        )
    return days


def _split_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _list_of(fits: Callable[[str], object], problem: str) -> BeforeValidator:
    """Return a validator of words with commas between. `problem` is said of one that does not fit."""

    def parse(value: Any) -> Any:
        words = _split_list(value)
        for word in words:
            if not fits(word):
                raise ValueError(f"{format_value(word)} {problem}")
        return words

    return BeforeValidator(parse)


def _by_model(parse: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator of `PATTERN=VALUE` with commas between: `ollama:*=32768, anthropic:*=200000`. A value alone
    has the pattern `*`.
    """

    def parse_entry(entry: str) -> tuple[str, Any]:
        pattern, equals, value = entry.rpartition("=")
        is_named = bool(equals) is bool(pattern.strip())
        return _normalize_pattern(pattern.strip() or "*"), parse(value.strip() if is_named else entry)

    def parse_entries(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(parse_entry(entry.strip()) for entry in value.split(",") if entry.strip())

    return BeforeValidator(parse_entries)


def _count_tokens(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9][0-9_]{0,19}", text):
            raise ValueError(
                "write a number of tokens, or models with one each, such as ollama:qwen3*=32768, openai:*=128000"
            )
        if not least <= int(text) <= most:
            raise ValueError(f"{text} is not between {least} and {most} tokens, such as 128000")
        return int(text)

    return parse


def _one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text.lower() not in values:
            raise ValueError(
                f"write {', '.join(values)}, or models with one each, such as openai:*={next(iter(values))}"
            )
        return values[text.lower()]

    return parse


def _normalize_pattern(text: str) -> str:
    """Return a model pattern with the provider in small letters, without blanks around the colon."""
    provider, colon, name = (part.strip() for part in text.partition(":"))
    return f"{provider.lower()}:{name}" if colon else text


def _parse_channel(value: Any) -> Any:
    """Parse `slack:T123:C456` or `discord:GUILD:CHANNEL`; the workspace may be missing."""
    if not isinstance(value, str):
        return value
    platform, *ids = value.split(":")
    if (
        platform not in ("slack", "discord")
        or len(ids) not in (1, 2)
        or not all(re.fullmatch(r"\w+", id_) for id_ in ids)
    ):
        raise ValueError(
            "write PLATFORM:WORKSPACE:CHANNEL, such as slack:T123:C456 or discord:81384:81385, by their ids"
        )
    return ConversationKey(platform, ids[0] if len(ids) == 2 else "", ids[-1], "")


def _parse_language(value: Any) -> Any:
    """Parse the tag of an installed language. Desktops set the same variable to a list of locales, such as `de_DE:de`,
    of which the first installed one counts.
    """
    languages = str(value).split(":")
    installed = next(filter(None, map(resolve_language, languages)), None)
    if installed is None and len(languages) == 1 and "_" not in languages[0]:
        raise ValueError(f"write the tag of a language that is there: {' or '.join(installed_languages())}")
    return installed or DEFAULT_LANGUAGE


def _parse_time_zone(value: Any) -> Any:
    """Parse the IANA name of a time zone."""
    zone = time_zone_name(value)
    if zone is None:
        close = " or ".join(close_time_zones(str(value))) or "Asia/Tokyo or UTC"
        raise ValueError(f"write the name of a time zone, such as {close}")
    return zone


def _is_network(word: str) -> bool:
    try:
        ip_network(word)
    except ValueError:
        return word == "*"
    return True


def _check_url(value: str) -> str:
    """Check an http or https URL. The error does not repeat it, because it may hold a password."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and is_host(parts.hostname or "") and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", value):
        raise ValueError("write an address such as https://host/v1")
    return value


def _check_https(value: str) -> str:
    """Check an https URL without credentials and query."""
    parts = urlsplit(_check_url(value))
    if parts.scheme != "https" or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("write an https address such as https://registry.modelcontextprotocol.io")
    return value


def _check_issuer(value: str) -> str:
    """Check the address of an OpenID Connect issuer."""
    parts = urlsplit(_check_url(value))
    is_clear = parts.scheme == "http" and not is_this_machine(parts.hostname or "")
    if is_clear or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("write the https address that the issuer gives itself, such as https://accounts.google.com")
    return value


Duration = Annotated[float | None, BeforeValidator(_parse_duration)]
DurationOrNever = Annotated[float | None, BeforeValidator(_parse_duration_or_never)]
SessionTime = Annotated[float, BeforeValidator(_parse_session_time)]
ModelTimeout = Annotated[float, BeforeValidator(_parse_model_timeout)]
Listed = Annotated[frozenset[str], NoDecode]
Principals = Annotated[
    Listed,
    _list_of(re.compile(r"[a-z-]+:\S+").fullmatch, "is not of the form platform:id, such as slack:U123 or console:ana"),
]
Words = Annotated[Listed, BeforeValidator(_split_list)]
Windows = Annotated[tuple[tuple[str, int], ...], NoDecode, _by_model(_count_tokens(_SMALLEST_WINDOW, _LARGEST_WINDOW))]
ReplyTokens = Annotated[tuple[tuple[str, int], ...], NoDecode, _by_model(_count_tokens(256, 1_000_000))]
Efforts = Annotated[
    tuple[tuple[str, str], ...], NoDecode, _by_model(_one_of({name: name for name in ("low", "medium", "high", "off")}))
]
Switches = Annotated[tuple[tuple[str, bool], ...], NoDecode, _by_model(_one_of({"on": True, "off": False}))]
Snowflakes = Annotated[
    Listed,
    _list_of(
        re.compile(r"[0-9]{1,20}").fullmatch,
        "is not an id, such as 81384788765712384: Discord copies it in Developer Mode",
    ),
]
SlackIds = Annotated[
    Listed,
    _list_of(
        re.compile(r"[TE][A-Z0-9]{1,20}").fullmatch,
        "is not the id of a workspace or organization, such as T0123ABCD or E0123ABCD: it is in the address of Slack "
        "in a browser, behind /client/",
    ),
]
SlackFeatures = Annotated[
    Listed,
    _list_of(SLACK_FEATURES.__contains__, f"is no feature of the app: write {', '.join(sorted(SLACK_FEATURES))}"),
]
Arguments = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(lambda value: tuple(shlex.split(value)) if isinstance(value, str) else value),
]
_HOST = re.compile(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
Hosts = Annotated[
    Listed,
    AfterValidator(lambda hosts: frozenset(map(str.lower, hosts))),
    _list_of(_HOST.fullmatch, "is not a host or host:port, such as n8n:5678"),
]
Networks = Annotated[
    Listed, _list_of(_is_network, "is not an IP address or a network, such as 10.0.0.2 or 172.16.0.0/12")
]
Channel = Annotated[ConversationKey | None, NoDecode, BeforeValidator(_parse_channel)]
Address = Annotated[str, AfterValidator(_check_url)]
SecureAddress = Annotated[str, AfterValidator(_check_https)]
Issuer = Annotated[str, AfterValidator(_check_issuer)]
AnyCase = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def _operator_file(name: str) -> Any:
    return Field(default_factory=lambda: find_folders().operator_file(name))


def _database_in(values: Mapping[str, Any]) -> str:
    folder = str(values.get("data_folder", "data"))
    # `read_address` decodes the path and cuts it at a question mark.
    return f"sqlite:///{folder.replace('%', '%25').replace('?', '%3F')}/{DATABASE}"


class Settings(BaseSettings):
    """Validated settings."""

    model_config = SettingsConfigDict(env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore", frozen=True)

    settings_folder: Path | None = None
    data_folder: Path = Field(default_factory=lambda: find_folders().data)

    # Addresses may hold passwords: like keys, they are not shown.
    database_url: str = Field(default_factory=_database_in, repr=False)
    db_host: str = ""
    db_port: Annotated[int, Field(ge=1, le=65535)] = 5432
    db_name: str = ""
    db_user: str = ""
    db_password: SecretStr | None = None
    auto_migrate: bool = True
    retention_days: Annotated[float, Field(ge=0)] = 30.0
    audit_key: SecretStr | None = None
    audit_checkpoint_file: str = ""
    audit_checkpoint_command: Arguments = ()
    audit_checkpoint_interval: Duration = 300.0
    usage_retention_days: Annotated[float, AfterValidator(_check_usage_days)] = 400.0

    bot_model: str = ""
    openai_api_key: SecretStr | None = None
    openai_base_url: Address | None = Field(None, repr=False)
    openai_api: Annotated[Literal["auto", "chat", "responses"], AnyCase] = "auto"
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: Address | None = Field(None, repr=False)

    slack_bot_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_client_id: str = ""
    slack_client_secret: SecretStr | None = None
    slack_workspaces: SlackIds = frozenset()
    slack_without: SlackFeatures = frozenset()
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
    forwarded_allow_ips: Networks = frozenset({"127.0.0.1"})
    admin_api_token: SecretStr | None = None
    public_url: Address | None = None
    oidc_issuer: Issuer | None = None
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr | None = None
    oidc_strangers: bool = False
    console: bool = True
    console_session_idle: SessionTime = 28800.0
    console_session_max: SessionTime = 604800.0
    api_docs: bool = False
    api_models: Words = frozenset()
    api_requests_per_token: Annotated[int, Field(ge=1, le=100_000)] = 100
    api_streams_per_token: Annotated[int, Field(ge=1, le=100_000)] = 50

    mcp_enabled: bool = True
    mcp_servers_file: Path = _operator_file("mcp_servers.json")
    mcp_launch_templates_file: Path = _operator_file("launch_templates.toml")
    mcp_secret_grants_file: Path = _operator_file("secret_grants.toml")
    mcp_connect_policy: Annotated[ConnectPolicy, AnyCase] = ConnectPolicy.AUTO
    mcp_sync_interval: Duration = 300.0
    mcp_session_idle_timeout: DurationOrNever = 1800.0
    mcp_healthcheck_interval: DurationOrNever = 60.0
    ready_needs_servers: bool = False
    mcp_reconnection_enabled: bool = True
    mcp_reconnection_max_attempts: Annotated[int, Field(ge=0, le=1_000)] = 5
    mcp_reconnection_initial_delay_ms: Annotated[int, Field(gt=0, le=86_400_000)] = 5_000
    mcp_reconnection_multiplier: Annotated[float, Field(ge=1, le=100)] = 2.0
    mcp_reconnection_max_delay_ms: Annotated[int, Field(gt=0, le=86_400_000)] = 60_000
    mcp_encryption_key: SecretStr | None = None
    encryption_master_password: SecretStr | None = None
    mcp_secret_variables: Words = frozenset({"MCP_SECRET_*"})
    mcp_secret_folder: Path = Path("/run/secrets")
    mcp_allowed_hosts: Hosts = frozenset()
    mcp_allowed_commands: Words = frozenset()
    mcp_allowed_commands_file: Path = _operator_file("allowed_commands.txt")
    mcp_registry_url: SecureAddress | None = None
    mcp_allowed_servers: Words = frozenset()
    mcp_proxy: Address | None = Field(None, repr=False)
    mcp_servers_enabled: Annotated[ServersEnabled, AnyCase] = ServersEnabled.ALL
    mcp_review: Annotated[ReviewPolicy, AnyCase] = ReviewPolicy.CHANGED
    taint_mode: Annotated[TaintMode, AnyCase] = TaintMode.ASK
    tool_search: Annotated[ToolSearch, AnyCase] = ToolSearch.AUTO
    max_tool_rounds: Annotated[int, Field(ge=1, le=MOST_TOOL_ROUNDS)] = 10
    tool_names_tokens: Annotated[int, Field(ge=0, le=50_000)] = 2_500
    tool_search_embeddings: Path | None = None
    mcp_approval_default_policy: Annotated[
        ApprovalPolicy | None, BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value)
    ] = None
    mcp_approval_timeout: Duration = 1800.0
    approval_notice: Annotated[ApprovalNotice, AnyCase] = ApprovalNotice.MENTION
    policy_file: Path = _operator_file("policy.toml")
    system_prompt_file: Path = _operator_file("system_prompt.md")
    context_tokens: Windows = ()
    model_max_tokens: ReplyTokens = ()
    model_reasoning: Efforts = ()
    model_images: Switches = ()
    model_first_timeout: ModelTimeout = 120.0
    model_idle_timeout: ModelTimeout = 60.0
    model_total_timeout: ModelTimeout = 300.0
    history_tokens: Annotated[int, Field(ge=1_000, le=1_000_000)] = 16_000
    history_tool_steps: Annotated[ToolReplay, AnyCase] = ToolReplay.NAMES
    prices_file: Path = _operator_file("prices.toml")
    limits_file: Path = _operator_file("limits.toml")
    max_running_turns_per_user: Annotated[int, Field(ge=1, le=10_000)] = 8
    max_queued_turns_per_user: Annotated[int, Field(ge=1, le=100_000)] = 100

    ops_channel: Channel = None

    admins: Principals = frozenset()
    approvers: Principals = frozenset()

    language: Annotated[str, BeforeValidator(_parse_language)] = "en"
    time_zone: Annotated[str, BeforeValidator(_parse_time_zone)] = Field(default_factory=machine_time_zone)

    log_level: Annotated[Literal["debug", "info", "warning", "error"], AnyCase] = "info"
    log_format: Annotated[Literal["auto", "text", "json"], AnyCase] = "auto"

    @property
    def keeps_content(self) -> bool:
        """False if the content of turns is deleted as soon as their answers are out."""
        return self.retention_days > 0

    @property
    def secrets(self) -> frozenset[str]:
        """Values that must never be shown: keys, and the password of the database."""
        keys = (value.get_secret_value() for _, value in self if isinstance(value, SecretStr))
        password = urlsplit(self.database_url).password or ""
        others = (value.strip() for name, value in read_environment().items() if name.upper().endswith("_API_KEY"))
        return frozenset(filter(None, (*keys, *others, password, unquote(password))))

    def access_to_models(self, prefix: str) -> tuple[str, str | None]:
        """Return the key (empty if missing) and the base URL of a model provider: `PREFIX_API_KEY` and
        `PREFIX_BASE_URL`, which need no field of this class. Raises SettingsError.
        """
        names = (f"{prefix}_API_KEY", f"{prefix}_BASE_URL")
        if names[0].lower() in Settings.model_fields:
            key, address = (getattr(self, name.lower()) for name in names)
            return (key.get_secret_value() if key else ""), address
        environment = read_environment()
        key, address = (environment.get(name, "").strip() for name in names)
        try:
            return key, _check_url(address) if address else None
        except ValueError as error:
            raise SettingsError(f"{names[1]} cannot be used: {error}.", "correct it there or in .env") from None

    def of_model(self, setting: str, model: str) -> Any:
        """Return a setting's value for a model, from the first pattern that matches; None if none does."""
        return next((value for pattern, value in getattr(self, setting) if fnmatchcase(model, pattern)), None)

    @model_validator(mode="before")
    @classmethod
    def _strip_values(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        # Files with keys often end with a line break, which would be part of the key.
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
        given = {name: value for name, value in stripped.items() if value != ""}
        if given.get("db_host") and "database_url" not in given:
            given["database_url"] = _database_url(given)
        return given

    @model_validator(mode="after")
    def _check_folders(self) -> Settings:
        # An admin may refer to any file in MCP_SECRET_FOLDER, and could send the bot's own keys to a server.
        own, servers = self.settings_folder, self.mcp_secret_folder.resolve()
        if own is not None and (own.resolve().is_relative_to(servers) or servers.is_relative_to(own.resolve())):
            raise SettingsError(
                f"SETTINGS_FOLDER ({own}) and MCP_SECRET_FOLDER ({self.mcp_secret_folder}) are not apart.",
                "keep the bot's own secrets in another folder than those of its servers",
            )
        return self

    @model_validator(mode="after")
    def _check_stream_limit(self) -> Settings:
        # A client with only streams could neither stop a turn nor approve a call.
        if self.api_streams_per_token >= self.api_requests_per_token:
            raise SettingsError(
                f"API_STREAMS_PER_TOKEN ({self.api_streams_per_token}) is not less than API_REQUESTS_PER_TOKEN "
                f"({self.api_requests_per_token}).",
                "leave room for requests beside streams: set API_REQUESTS_PER_TOKEN higher",
            )
        return self

    @model_validator(mode="after")
    def _check_openid(self) -> Settings:
        needed = {
            "OIDC_ISSUER": self.oidc_issuer,
            "OIDC_CLIENT_ID": self.oidc_client_id,
            "OIDC_CLIENT_SECRET": self.oidc_client_secret,
        }
        missing = [name for name, value in needed.items() if not value]
        given = [name for name in needed if name not in missing]
        if given and missing:
            raise SettingsError(
                f"{' and '.join(given)} is set without {' and '.join(missing)}.",
                f"set {', '.join(needed)}, or none of them",
            )
        if not missing and self.public_url is None:
            raise SettingsError(
                "OIDC_ISSUER is set without PUBLIC_URL, the address that the issuer sends browsers back to.",
                "set PUBLIC_URL, such as https://bot.example.com",
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - passed by name; which file counts is known here only
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - passed by name; replaced by _read_files, which has better errors
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by priority: arguments, environment, .env, files, alternative names."""
        files, others = _read_files(), _alternative_settings()
        sources = [InitSettingsSource(settings_cls, {**values}) for values in (files, others)]
        dotenv = DotEnvSettingsSource(settings_cls, env_file=find_folders().env_file)
        return (init_settings, env_settings, dotenv, *sources)


def _database_url(given: Mapping[str, Any]) -> str:
    if not given.get("db_name"):
        raise SettingsError("DB_HOST names a server, but no database on it.", "set DB_NAME, or DATABASE_URL instead")
    host, password = str(given["db_host"]), given.get("db_password", "")
    user = quote(str(given.get("db_user", "")), safe="")
    secret = quote(password.get_secret_value() if isinstance(password, SecretStr) else str(password), safe="")
    login = f"{user}:{secret}@" if secret else f"{user}@" if user else ""
    address = f"[{host}]" if ":" in host else host
    port = given.get("db_port", Settings.model_fields["db_port"].default)
    return f"postgresql://{login}{address}:{port}/{quote(str(given['db_name']), safe='')}"


def _read_files() -> dict[str, str]:
    """Return the values of the files in SETTINGS_FOLDER, or in the credentials folder of a systemd unit. Raises
    SettingsError.
    """
    folder = _read_variables().get("SETTINGS_FOLDER", "").strip() or os.environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return {}
    try:
        # Secret stores put links and folders of their own beside the files, under names with a dot.
        paths = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and not path.name.startswith(".")]
        return {**{path.name.lower(): _first_bytes(path) for path in paths}, "settings_folder": folder}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "a file in it is no text"
        raise SettingsError(
            f"The settings in {folder} cannot be read: {reason}.",
            "let the user that the bot runs as read the folder and its files, or correct SETTINGS_FOLDER",
        ) from error


def _first_bytes(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LARGEST_FILE).decode("utf-8").strip()


def _alternative_settings() -> dict[str, str]:
    """Return settings that are written as properties, `mcp.approval.default-policy`, or by alternative names."""
    named = ((setting_name(name), name, value) for name, value in _read_variables().items())
    return {field: value for field, name, value in named if field and field != name.lower()}


def setting_name(name: str) -> str:
    """Return the setting, in small letters, that a variable of this name or spelling sets; empty if there is none."""
    plain = _plain_name(name)
    field = _OTHER_NAMES.get(plain, plain)
    return field if field in Settings.model_fields else ""


def _plain_name(name: str) -> str:
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name) if "." in name else name
    return re.sub(r"[.-]", "_", spelled).lower() if "." in name else name.lower()


def find_ineffective_settings(settings: Settings) -> dict[str, str]:
    """Return the names in `.env`, SETTINGS_FOLDER and the environment that look like settings of this program and set
    nothing, each with what to do instead.
    """
    files = {name.upper() for name in _read_files()}
    own = {*dotenv_values(find_folders().env_file, encoding="utf-8"), *files}
    advice = {name: _advice(name, is_own=name in own) for name in sorted({*_read_variables(), *files})}
    return {
        name: text
        for name, text in advice.items()
        if text and not any(fnmatchcase(name, pattern) for pattern in settings.mcp_secret_variables)
    }


def _advice(name: str, *, is_own: bool) -> str:
    """Return the fix for a variable that sets nothing; empty if it is none of this program's. `is_own` is True for
    one in a file of this program.
    """
    plain = _plain_name(name)
    if setting_name(name) or plain.endswith(("_api_key", "_base_url")):
        return ""
    if plain in _WITHOUT_EFFECT:
        return _WITHOUT_EFFECT[plain]
    close = difflib.get_close_matches(plain, Settings.model_fields, n=1, cutoff=0.85)
    if close and (is_own or plain.startswith("mcp_")):
        return f"write {close[0].upper()}, if that is meant, or remove it"
    return "remove it, or correct its name" if name.lower().startswith("mcp.") else ""


def _read_variables() -> dict[str, str]:
    variables = dotenv_values(find_folders().env_file, encoding="utf-8")
    return {**{name: value for name, value in variables.items() if value is not None}, **os.environ}


def read_environment() -> dict[str, str]:
    """Return all variables, with those of .env and SETTINGS_FOLDER, for references in the operator's files. Call it
    after `read_settings`, which raises clear errors for unreadable files.
    """
    return {**{name.upper(): value for name, value in _read_files().items()}, **_read_variables()}


def read_settings(**overrides: Any) -> Settings:
    """Read the environment. `overrides` (from the command line) win.

    Raises SettingsError that names every invalid variable, never the value of one that may be secret.
    """
    try:
        _check_quotes()
        return Settings(**overrides)
    except ValidationError as error:
        problems = "; ".join(_format_error(problem, Settings.model_fields) for problem in error.errors())
        raise SettingsError(f"The environment cannot be used: {problems}.", "correct it there or in .env") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{find_folders().env_file} cannot be read: {error}.",
            "let your user read it, as UTF-8 text, or remove it",
        ) from error


def _check_quotes() -> None:
    """Raise SettingsError for settings with quotes around their values. `docker run --env-file` and mounted files keep
    them. Commands may begin and end with a quote.
    """
    for read in (_read_variables, _read_files):
        quoted = [name for name, value in read().items() if _is_quoted(value.strip()) and _is_value(name)]
        if quoted:
            raise SettingsError(
                f"Quotes are around the value of {', '.join(sorted(name.upper() for name in quoted))}, and would be a "
                "part of it.",
                "remove them: only a shell, .env and Compose take them off, docker run --env-file does not",
            )


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] and value[0] in "'\""


def _is_value(name: str) -> bool:
    if field := Settings.model_fields.get(setting_name(name)):
        return field.annotation != tuple[str, ...]
    return name == HOME_VARIABLE or _plain_name(name).endswith(("_api_key", "_base_url"))


# -------------------- errors


def _format_error(error: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    """Return an error of pydantic about a setting as a sentence."""
    name = str(error["loc"][0])
    wrong = (
        redact(error["msg"].removeprefix(_PREFIX))
        if error["type"] == _BY_VALIDATOR
        else _expected_form(fields.get(name))
    )
    if name.endswith(_SECRET_ENDINGS):
        return f"{name.upper()}: {wrong}"
    return f"{name.upper()} is {format_value(error['input'])}: {wrong}"


def format_value(value: Any) -> str:
    """Return a value in quotes, truncated to _LONGEST_SHOWN characters, with dots in place of possible keys."""
    written = repr(_RUN.sub(_unless_key, redact(value)) if isinstance(value, str) else value)
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"


def _unless_key(run: re.Match[str]) -> str:
    return MASK if _KEY.fullmatch(run[0]) else run[0]


def _expected_form(field: FieldInfo | None) -> str:
    """Return the expected form: `write a whole number from 1 to 65535, such as 5432`."""
    if field is None:
        return "it cannot be used"
    example = f", such as {field.default:.15g}" if isinstance(field.default, int | float) else ""
    match field.annotation:
        case type() as kind if kind is bool:
            return "write true or false"
        case type() as kind if kind is int:
            return f"write a whole number{_bounds(field)}{example}"
        case type() as kind if kind is float:
            return f"write a number{_bounds(field)}{example}"
        case annotation:
            choices = list(_choices(annotation))
            return f"write {' or '.join([', '.join(choices[:-1]), choices[-1]])}" if choices else "it cannot be used"


def _bounds(field: FieldInfo) -> str:
    bounds = {
        name: getattr(constraint, name)
        for constraint in field.metadata
        for name in ("gt", "ge", "le")
        if hasattr(constraint, name)
    }
    match bounds:
        case {"ge": least, "le": most}:
            return f" from {least} to {most}"
        case {"gt": below, "le": most}:
            return f", more than {below} and at most {most}"
        case {"gt": below}:
            return f", more than {below}"
        case {"ge": least}:
            return f", at least {least}"
        case _:
            return ""


def _choices(annotation: Any) -> Iterator[str]:
    """Yield the values of a Literal or an Enum, also inside a union."""
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (str(member.value) for member in annotation)
    else:
        for member in get_args(annotation):
            yield from _choices(member)
