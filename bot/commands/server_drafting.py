"""What adding and editing a server share: whether this person may have it so, and a look at it once it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bot.commands.definitions import Drafted, command_line
from bot.commands.directory import Directory, taken
from bot.commands.parts import CommandParts
from bot.commands.phrases import named
from bot.commands.refusals import Refusal
from bot.commands.server_checks import verified
from bot.commands.server_listing import reached
from bot.domain.commands import Reply
from bot.domain.conversations import ConversationKey, Member
from bot.domain.servers import ServerConfig, ServerRecord, StdioTransport

_OPERATORS = "Only the operator may have programs started on this machine."


class ServerDrafting:
    """Judges drafts."""

    def __init__(self, parts: CommandParts, directory: Directory) -> None:
        self._parts = parts
        self._directory = directory

    def operates(self, member: Member) -> bool:
        """Whether this is the operator."""
        return self._parts.rights.operates(member)

    def may_define(self, config: ServerConfig, member: Member) -> None:
        """Raises Refusal if this person may not touch such a definition."""
        if isinstance(config.transport, StdioTransport) and not self.operates(member):
            raise Refusal(f"{_OPERATORS} This server is one.")

    async def judge(self, draft: Drafted, member: Member, conversation: ConversationKey) -> Drafted:
        """The draft, with what it does not show by itself among its errors: whether this person may have it, here,
        under this name.
        """
        config = draft.record.config
        local = isinstance(config.transport, StdioTransport)
        if local and not self.operates(member):
            draft.errors["transport"] = f"{_OPERATORS} Choose streamable_http."
        place = "command" if local else "url"
        if place not in draft.errors and (objection := self._parts.administration.objection(config)):
            draft.errors[place] = objection
        if self._parts.allowed_names and config.name not in self._parts.allowed_names:
            draft.errors.setdefault("name", "The operator does not allow a server of this name here.")
        others = await self._directory.all(conversation)
        for field, text in (("name", config.name), ("title", config.title)):
            other = taken(others, text, but=config.id) if text else None
            if other is not None:
                draft.errors.setdefault(field, f"This is taken by {other.name}.")
        return draft

    async def looked_at(self, record: ServerRecord, done: str, *, verify: bool) -> AsyncIterator[Reply]:
        """What has been kept, exactly, and whether it can be used."""
        facts = exactly(record.config)
        if not verify:
            yield Reply(f"{named(record.config)} is {done}.", details=facts)
            return
        async for reply in verified(self._parts.servers, record.config, done):
            yield replace(reply, details=(*facts, *reply.details))


def starts(config: ServerConfig) -> str:
    """What a person is about to have started."""
    return f"It will start exactly this on the machine the bot runs on:\n{command_line(config)}"


def exactly(config: ServerConfig) -> tuple[tuple[str, str], ...]:
    """Where a server is, or what is started for it, with its words told apart."""
    if isinstance(config.transport, StdioTransport):
        return (("command", command_line(config)),)
    return tuple(reached(config))
