"""Everything that comes from the environment, in one class. Read by the composition root and the command line only.

Names are the contract of docs/configuration.md. `.env` in the working folder and the files in SETTINGS_FOLDER are read
too: the environment wins over `.env`, and both win over the files.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote, urlsplit

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bot.domain.approval_requirements import ApprovalNotice
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import ConversationKey
from bot.domain.pins import ReviewPolicy
from bot.domain.policies import TaintMode
from bot.domain.servers import ConnectPolicy
from bot.domain.tools import ToolSearch
from bot.domain.turns import ToolReplay
from bot.errors import SettingsError
from bot.setting_errors import format_error, format_value

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_DAYS = 366
_LARGEST_FILE = 64 * 1024
"""Bytes of a file in SETTINGS_FOLDER: a key or an address, and nothing else."""
_SHORTEST_USAGE = 32
"""Days that numbers are kept at least: a month's limits are added up from its first moment on, up to 31 days ago, and
one more leaves room for clocks.
"""
_SMALLEST_WINDOW, _LARGEST_WINDOW = 2_000, 100_000_000
_OTHER_NAMES = {
    "mcp_capabilities_cache_ttl": "mcp_sync_interval",
    "mcp_security_allowed_server_names": "mcp_allowed_servers",
}
"""Alternative names, as used by other programs."""


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
        raise ValueError(f"write a time of more than 0 and at most {_LONGEST_DAYS}d, or never, such as 30m")
    return seconds


def _seconds_or_never(value: Any) -> Any:
    """The same, and `0` means never, too."""
    return None if re.fullmatch(r"0+\s*[smhd]?", str(value).lower()) else _seconds(value)


def _past_a_month(days: float) -> float:
    if not days >= _SHORTEST_USAGE:
        raise ValueError(
            f"write a number of days, at least {_SHORTEST_USAGE}, such as 400: "
            "a month's limits are added up from what is kept"
        )
    return days


def _names(value: Any) -> Any:
    """A comma-separated list of `platform:id`."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z-]+:\S+", name):
            raise ValueError(f"{format_value(name)} is not of the form platform:id, such as slack:U123 or console:ana")
    return frozenset(names)


def _words(value: Any) -> Any:
    """A comma-separated list."""
    if not isinstance(value, str):
        return value
    return frozenset(word.strip() for word in value.split(",") if word.strip())


def _snowflakes(value: Any) -> Any:
    """A comma-separated list of Discord's ids, which are numbers."""
    ids = _words(value)
    for word in ids:
        if not re.fullmatch(r"[0-9]{1,20}", word):
            raise ValueError(
                f"{format_value(word)} is not an id, such as 81384788765712384: Discord copies it in Developer Mode"
            )
    return ids


def _windows(value: Any) -> Any:
    """`200000`, or `PATTERN=TOKENS` with commas between: `ollama:*=32768, anthropic:*=200000`. A number alone is for
    every model, like the pattern `*`.
    """
    if not isinstance(value, str):
        return value
    return tuple(_window(entry.strip()) for entry in value.split(",") if entry.strip())


def _window(entry: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:(\S.*?)\s*=\s*)?([0-9][0-9_]{0,19})", entry)
    if match is None:
        raise ValueError(
            "write a number of tokens, or models with one each, such as ollama:qwen3*=32768, openai:*=128000"
        )
    if not _SMALLEST_WINDOW <= int(match[2]) <= _LARGEST_WINDOW:
        raise ValueError(f"{match[2]} is not between {_SMALLEST_WINDOW} and {_LARGEST_WINDOW} tokens, such as 128000")
    return _pattern(match[1] or "*"), int(match[2])


def _pattern(written: str) -> str:
    """As models are called: a provider's name may be written large, and with blanks behind it."""
    provider, colon, name = (part.strip() for part in written.partition(":"))
    return f"{provider.lower()}:{name}" if colon else written


def _channel(value: Any) -> Any:
    """`slack:T123:C456`, `discord:GUILD:CHANNEL`; without the workspace if there is only one."""
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


def _hosts(value: Any) -> Any:
    """A comma-separated list of `host` or `host:port`."""
    hosts = _words(value)
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?", host):
            raise ValueError(f"{format_value(host)} is not a host or host:port, such as n8n:5678")
    return frozenset(host.lower() for host in hosts)


def _networks(value: Any) -> Any:
    """A comma-separated list of IP addresses and networks, or `*`."""
    words = _words(value)
    for network in words - {"*"}:
        try:
            ip_network(network)
        except ValueError:
            raise ValueError(
                f"{format_value(network)} is not an IP address or a network, such as 10.0.0.2 or 172.16.0.0/12"
            ) from None
    return words


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


def _arguments(value: Any) -> Any:
    """A program and its arguments, quoted as in a shell, which runs none of it."""
    return tuple(shlex.split(value)) if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


Duration = Annotated[float | None, BeforeValidator(_seconds)]
DurationOrNever = Annotated[float | None, BeforeValidator(_seconds_or_never)]
Principals = Annotated[frozenset[str], NoDecode, BeforeValidator(_names)]
Words = Annotated[frozenset[str], NoDecode, BeforeValidator(_words)]
Windows = Annotated[tuple[tuple[str, int], ...], NoDecode, BeforeValidator(_windows)]
Snowflakes = Annotated[frozenset[str], NoDecode, BeforeValidator(_snowflakes)]
Arguments = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_arguments)]
Hosts = Annotated[frozenset[str], NoDecode, BeforeValidator(_hosts)]
Networks = Annotated[frozenset[str], NoDecode, BeforeValidator(_networks)]
Channel = Annotated[ConversationKey | None, NoDecode, BeforeValidator(_channel)]
Address = Annotated[str, AfterValidator(_address)]
AnyCase = BeforeValidator(_lower)


class Settings(BaseSettings):
    """The environment, checked."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore", frozen=True
    )

    settings_folder: Path | None = None

    # Addresses may hold passwords: like keys, they are not shown.
    database_url: str = Field("sqlite:///data/countersign.db", repr=False)
    db_host: str = ""
    db_port: Annotated[int, Field(ge=1, le=65535)] = 5432
    db_name: str = ""
    db_user: str = ""
    db_password: SecretStr | None = None
    auto_migrate: bool = True
    retention_days: Annotated[float, Field(gt=0)] = 30.0
    audit_key: SecretStr | None = None
    audit_checkpoint_file: str = ""
    audit_checkpoint_command: Arguments = ()
    audit_checkpoint_interval: Duration = 300.0
    usage_retention_days: Annotated[float, AfterValidator(_past_a_month)] = 400.0

    bot_model: str = ""
    openai_api_key: SecretStr | None = None
    openai_base_url: Address | None = Field(None, repr=False)
    openai_api: Annotated[Literal["auto", "chat", "responses"], AnyCase] = "auto"
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
    forwarded_allow_ips: Networks = frozenset({"127.0.0.1"})
    admin_api_token: SecretStr | None = None
    public_url: Address | None = None
    api_docs: bool = False
    api_requests_per_token: Annotated[int, Field(ge=1, le=100_000)] = 100
    api_streams_per_token: Annotated[int, Field(ge=1, le=100_000)] = 50

    mcp_enabled: bool = True
    mcp_servers_file: Path = Path("config/mcp_servers.json")
    mcp_launch_templates_file: Path = Path("config/launch_templates.toml")
    mcp_secret_grants_file: Path = Path("config/secret_grants.toml")
    mcp_connect_policy: Annotated[ConnectPolicy, AnyCase] = ConnectPolicy.AUTO
    mcp_sync_interval: Duration = 300.0
    mcp_session_idle_timeout: DurationOrNever = 1800.0
    mcp_healthcheck_interval: DurationOrNever = 60.0
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
    mcp_allowed_servers: Words = frozenset()
    mcp_review: Annotated[ReviewPolicy, AnyCase] = ReviewPolicy.CHANGED
    taint_mode: Annotated[TaintMode, AnyCase] = TaintMode.ASK
    tool_search: Annotated[ToolSearch, AnyCase] = ToolSearch.AUTO
    mcp_approval_default_policy: Annotated[ApprovalPolicy | None, BeforeValidator(_upper)] = None
    mcp_approval_timeout: Duration = 1800.0
    approval_notice: Annotated[ApprovalNotice, AnyCase] = ApprovalNotice.MENTION
    policy_file: Path = Path("config/policy.toml")
    system_prompt_file: Path = Path("config/system_prompt.md")
    context_tokens: Windows = ()
    history_tokens: Annotated[int, Field(ge=1_000, le=1_000_000)] = 16_000
    history_tool_steps: Annotated[ToolReplay, AnyCase] = ToolReplay.NAMES
    prices_file: Path = Path("config/prices.toml")
    limits_file: Path = Path("config/limits.toml")
    max_running_turns_per_user: Annotated[int, Field(ge=1, le=10_000)] = 8
    max_queued_turns_per_user: Annotated[int, Field(ge=1, le=100_000)] = 100

    ops_channel: Channel = None

    admins: Principals = frozenset()
    approvers: Principals = frozenset()

    log_level: Annotated[Literal["debug", "info", "warning", "error"], AnyCase] = "info"
    log_format: Annotated[Literal["auto", "text", "json"], AnyCase] = "auto"

    @property
    def secrets(self) -> frozenset[str]:
        """Every value here that must never be shown: keys, and the database's password."""
        keys = (value.get_secret_value() for _, value in self if isinstance(value, SecretStr))
        password = urlsplit(self.database_url).password or ""
        others = (value.strip() for name, value in read_environment().items() if name.upper().endswith("_API_KEY"))
        return frozenset(filter(None, (*keys, *others, password, unquote(password))))

    def access_to_models(self, prefix: str) -> tuple[str, str | None]:
        """The key (empty without one) and the address that are set for a provider of models: `PREFIX_API_KEY` and
        `PREFIX_BASE_URL`. Providers come and go, so not each has its fields here. Raises SettingsError.
        """
        names = (f"{prefix}_API_KEY", f"{prefix}_BASE_URL")
        if names[0].lower() in Settings.model_fields:
            key, address = (getattr(self, name.lower()) for name in names)
            return (key.get_secret_value() if key else ""), address
        environment = read_environment()
        key, address = (environment.get(name, "").strip() for name in names)
        try:
            return key, _address(address) if address else None
        except ValueError as error:
            raise SettingsError(f"{names[1]} cannot be used: {error}.", "correct it there or in .env") from None

    def window_of(self, model: str) -> int | None:
        """Tokens of the model's window by CONTEXT_TOKENS: the first of its patterns that fits counts."""
        return next((tokens for pattern, tokens in self.context_tokens if fnmatchcase(model, pattern)), None)

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        # A line break behind a key, as secrets from files often have, would make it another key.
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
        given = {name: value for name, value in stripped.items() if value != ""}
        if given.get("db_host") and "database_url" not in given:
            given["database_url"] = _database_url(given)
        return given

    @model_validator(mode="after")
    def _keeps_its_own(self) -> Settings:
        # Whoever adds a server names files in there, and would get the bot's own keys sent to a server of theirs.
        own, servers = self.settings_folder, self.mcp_secret_folder.resolve()
        if own is not None and (own.resolve().is_relative_to(servers) or servers.is_relative_to(own.resolve())):
            raise SettingsError(
                f"SETTINGS_FOLDER ({own}) and MCP_SECRET_FOLDER ({self.mcp_secret_folder}) are not apart.",
                "keep the bot's own secrets in another folder than those of its servers",
            )
        return self

    @model_validator(mode="after")
    def _leaves_room_beside_streams(self) -> Settings:
        # A client whose streams take every request it may have could not stop or approve anything.
        if self.api_streams_per_token >= self.api_requests_per_token:
            raise SettingsError(
                f"API_STREAMS_PER_TOKEN ({self.api_streams_per_token}) is not less than API_REQUESTS_PER_TOKEN "
                f"({self.api_requests_per_token}).",
                "leave room for requests beside streams: set API_REQUESTS_PER_TOKEN higher",
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - passed by name; ours says what is wrong
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by priority: arguments, environment, .env, files, alternative names."""
        files, others = _files(), _under_other_names()
        sources = [InitSettingsSource(settings_cls, {**values}) for values in (files, others)]
        return (init_settings, env_settings, dotenv_settings, *sources)


def _database_url(given: Mapping[str, Any]) -> str:
    """The address of the server that DB_HOST and its like name."""
    if not given.get("db_name"):
        raise SettingsError("DB_HOST names a server, but no database on it.", "set DB_NAME, or DATABASE_URL instead")
    host, password = str(given["db_host"]), given.get("db_password", "")
    user = quote(str(given.get("db_user", "")), safe="")
    secret = quote(password.get_secret_value() if isinstance(password, SecretStr) else str(password), safe="")
    whose = f"{user}:{secret}@" if secret else f"{user}@" if user else ""
    where = f"[{host}]" if ":" in host else host
    port = given.get("db_port", Settings.model_fields["db_port"].default)
    return f"postgresql://{whose}{where}:{port}/{quote(str(given['db_name']), safe='')}"


def _files() -> dict[str, str]:
    """Return the values of the files in SETTINGS_FOLDER, or in the credentials folder of a systemd unit. Raises
    SettingsError.
    """
    folder = _written().get("SETTINGS_FOLDER", "").strip() or os.environ.get("CREDENTIALS_DIRECTORY", "")
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


def _under_other_names() -> dict[str, str]:
    """Settings that are written as properties, `mcp.approval.default-policy`, or as other programs call them."""
    named = ((setting_of(name), name, value) for name, value in _written().items())
    return {field: value for field, name, value in named if field and field != name.lower()}


def setting_of(name: str) -> str:
    """The setting that a variable of this name is, in small letters, however it is written; empty if it is none."""
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name) if "." in name else name
    plain = re.sub(r"[.-]", "_", spelled).lower() if "." in name else name.lower()
    field = _OTHER_NAMES.get(plain, plain)
    return field if field in Settings.model_fields else ""


def _written() -> dict[str, str]:
    """Every variable there is, those of .env included."""
    written = dotenv_values(".env", encoding="utf-8")
    return {**{name: value for name, value in written.items() if value is not None}, **os.environ}


def read_environment() -> dict[str, str]:
    """Every variable there is, those of .env and of SETTINGS_FOLDER included, for what the operator's files refer to.
    Call it after `read_settings`, which says what is wrong with them.
    """
    return {**{name.upper(): value for name, value in _files().items()}, **_written()}


def read_settings(**overrides: Any) -> Settings:
    """Read the environment. `overrides` (from the command line) win.

    Raises SettingsError that names every variable which cannot be used, never the value of one that may be secret.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = "; ".join(format_error(problem, Settings.model_fields) for problem in error.errors())
        raise SettingsError(f"The environment cannot be used: {problems}.", "correct it there or in .env") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f".env cannot be read: {error}.", "save it as UTF-8 text, or remove it") from error
