"""Anthropic, and servers that speak Messages."""

from __future__ import annotations

from bot.llm.providers import Provider, always

PROVIDER = Provider(always("anthropic"), variables="ANTHROPIC", model="claude-sonnet-5-5")
