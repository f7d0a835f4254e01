"""OpenAI by whichever of its protocols OPENAI_API says. By itself it is Responses at the vendor's address and Chat
Completions at any other, since that is what servers of others speak.
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
