"""OpenAI with the protocol that OPENAI_API names. The default is Responses at the vendor's address and Chat Completions
at any other, because other servers speak that.
"""

from __future__ import annotations

from bot.llm.providers import Access, Key, Provider, is_at


def _protocol(access: Access) -> str:
    match access.api:
        case "chat":
            return "openai_chat"
        case "responses":
            return "openai_responses"
        case _:
            return "openai_responses" if is_at(access.address, "api.openai.com") else "openai_chat"


PROVIDER = Provider(_protocol, variables="OPENAI", model="gpt-5.5", key=Key.NEEDED_AT_HOME)
