"""Ollama on this machine, or at OLLAMA_BASE_URL."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(
    always("openai_chat"),
    variables="OLLAMA",
    address="http://127.0.0.1:11434/v1",
    key=Key.OPTIONAL,
    more={"running_at": "/api/ps"},  # its list of models does not say with which window one was started
)
