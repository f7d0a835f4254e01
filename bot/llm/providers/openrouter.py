"""OpenRouter, which passes questions on to models of many vendors."""

from __future__ import annotations

from bot.llm.providers import Provider, always

PROVIDER = Provider(
    always("openai_chat"),
    variables="OPENROUTER",
    address="https://openrouter.ai/api/v1",
    more={"key_at": "/key"},  # its list of models is open to everybody
)
