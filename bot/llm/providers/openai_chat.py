"""Chat Completions at any address: OpenAI's, or that of a compatible server (vLLM, LiteLLM and many others)."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(always("openai_chat"), variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME)
