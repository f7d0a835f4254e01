"""Ollama on this machine, or at OLLAMA_BASE_URL."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(always("openai_chat"), variables="OLLAMA", address="http://127.0.0.1:11434/v1", key=Key.OPTIONAL)
