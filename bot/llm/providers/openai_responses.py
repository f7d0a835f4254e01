"""Responses at any address."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(always("openai_responses"), variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME)
