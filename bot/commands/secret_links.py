"""One-time links in private replies, for entering secrets. `secret_form` handles their form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.commands.dependencies import CommandDependencies
from bot.commands.server_definition import ParsedDefinition, deferred_secrets
from bot.commands.text_format import pluralize
from bot.domain.commands import Reply, ReplyAction
from bot.domain.conversations import Author, ConversationKey
from bot.domain.secrets import LINK_SECONDS
from bot.domain.servers import AUTH_SECRET, USER_SLOT, ServerRecord

PATH = "/secret/"
"""Path of the form; the token follows it."""
SWITCH_ON = (
    "The operator can have secrets entered on a page of the bot's own instead, by one-time links: `PUBLIC_URL` "
    "switches them on."
)


class SecretLinks:
    """Creates one-time links if the operator has enabled them."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._linking = parts.linking

    @property
    def on(self) -> bool:
        """True if one-time links are enabled."""
        return self._linking is not None

    def ready(self, draft: ParsedDefinition) -> ParsedDefinition:
        """Return the draft without errors about missing secrets that can be entered later."""
        return deferred_secrets(draft) if self.on else draft

    async def asked(self, record: ServerRecord, by: Author, conversation: ConversationKey, said: str) -> Reply:
        """Return a reply that asks for the missing secrets: with a link for the first, or with a command for each if
        links are disabled.
        """
        first, *others = missing_slots(record)
        if self.on:
            reply = await self.offered(record, first, by, conversation, said)
            return replace(reply, details=(*reply.details, *_commands(record, others)))
        how = f"The operator can type it in a terminal: `/mcp secret set {record.config.name} {first}`."
        return Reply(f"{said} {how} {SWITCH_ON}", details=_commands(record, others))

    async def offered(
        self, record: ServerRecord, slot: str, by: Author, conversation: ConversationKey, said: str
    ) -> Reply:
        """Return a private reply with a link for this slot after `said`, which is Markdown of this project. Earlier
        links of the user for this slot become invalid.
        """
        assert self._linking is not None, "links are switched off"
        _, token = await self._linking.store.create_link(record.id, slot, by, conversation)
        address = f"{self._linking.address}{PATH}{token}"
        minutes = int(LINK_SECONDS // 60)
        return Reply(
            f"{said} [Enter the secret]({address}). The link works once, for {minutes} minutes, for you: keep it to "
            "yourself.",
            details=(("secret", slot),),
            actions=(ReplyAction("Another link", ("mcp", "secret", "set", record.config.name, slot)),),
        )


def missing_slots(record: ServerRecord) -> tuple[str, ...]:
    """Return the slots of missing secrets, the authentication secret first."""
    # A user name is entered together with its password.
    with_password = {USER_SLOT} if AUTH_SECRET in record.missing else set[str]()
    return tuple(sorted(record.missing - with_password, key=lambda slot: (slot != AUTH_SECRET, slot)))


def awaited(record: ServerRecord) -> str:
    """Return a short text about the missing secrets."""
    slots = missing_slots(record)
    return "the secret it signs in with" if slots == (AUTH_SECRET,) else pluralize(len(slots), "secret")


def _commands(record: ServerRecord, slots: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("also", f"/mcp secret set {record.config.name} {slot}") for slot in slots)
