"""Settings from the environment: address of the service, use of sample data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

DEFAULT_BASE_URL = "https://www.jma.go.jp"


class SampleMode(StrEnum):
    """When the bundled sample replaces the service's data."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


class InvalidSetting(Exception):
    """A variable has an invalid value. The message has its name, the value and a remedy."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the server. `base_url` has no slash at its end."""

    base_url: str = DEFAULT_BASE_URL
    sample: SampleMode = SampleMode.NEVER


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read `WEATHER_BASE_URL` and `WEATHER_SAMPLE`; unset and empty mean the default. Raises InvalidSetting."""
    base_url = environment.get("WEATHER_BASE_URL", "").strip().rstrip("/") or DEFAULT_BASE_URL
    if not _is_http_address(base_url):
        raise InvalidSetting(
            f"WEATHER_BASE_URL is {base_url[:100]!r}, which is not an http or https address; "
            f"unset it for {DEFAULT_BASE_URL}, or give one such as http://127.0.0.1:8000."
        )
    sample = environment.get("WEATHER_SAMPLE", "").strip().lower() or SampleMode.NEVER
    if sample not in list(SampleMode):
        raise InvalidSetting(
            f"WEATHER_SAMPLE is {sample[:100]!r}; use auto (sample data when the service does not answer), "
            "never or always."
        )
    return Settings(base_url, SampleMode(sample))


def _is_http_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
