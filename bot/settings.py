"""Everything that comes from the environment, in one class. Read by the composition root and the command line only.

Names are the contract of docs/configuration.md. `.env` in the working folder is read too; the environment wins.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bot.domain.approvals import ApprovalPolicy
from bot.errors import SettingsError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(value: Any) -> Any:
    """`90`, `60s`, `30m`, `24h` or `2d` in seconds; `never` is None."""
    if not isinstance(value, str):
        return value
    if value.strip().lower() == "never":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip().lower())
    if match is None:
        raise ValueError("write a number and a unit, such as 60s, 30m or 24h, or never")
    return float(match[1]) * _UNITS[match[2]]


def _names(value: Any) -> Any:
    """A comma-separated list of `platform:id`."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[a-z-]+:\S+", name):
            raise ValueError(f"{name!r} is not of the form platform:id, such as slack:U123 or console:ana")
    return frozenset(names)


Duration = Annotated[float | None, BeforeValidator(_seconds)]
Principals = Annotated[frozenset[str], NoDecode, BeforeValidator(_names)]


class Settings(BaseSettings):
    """The environment, checked."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", env_ignore_empty=True, extra="ignore", frozen=True
    )

    database_url: str = "sqlite:///data/countersign.db"
    auto_migrate: bool = True

    bot_model: str = ""
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_api: Literal["auto", "chat"] = "auto"
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None

    mcp_enabled: bool = True
    mcp_servers_file: Path = Path("config/mcp_servers.json")
    mcp_approval_default_policy: ApprovalPolicy | None = None
    mcp_approval_timeout: Duration = 1800.0
    policy_file: Path = Path("config/policy.toml")
    system_prompt_file: Path = Path("config/system_prompt.md")

    admins: Principals = frozenset()
    approvers: Principals = frozenset()

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = "auto"


def read_settings(**overrides: Any) -> Settings:
    """Read the environment. `overrides` (from the command line) win.

    Raises SettingsError that names the variable, never its value if that is a secret.
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc'])).upper()}: {each['msg']}" for each in error.errors()]
        raise SettingsError(
            f"The environment cannot be used: {'; '.join(problems)}.", "correct it there or in .env"
        ) from None
