"""Chat Completions whatever the address: OpenAI's, or a server's that speaks it (vLLM, LiteLLM and many others)."""

from __future__ import annotations

from bot.llm.providers import Key, Provider, always

PROVIDER = Provider(always("openai_chat"), variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME)
