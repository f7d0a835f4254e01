"""The demo, which needs no key and no network."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(always("demo"), key=Key.OPTIONAL)
