"""One-time links as people get them in a chat: who asks for a place to enter a secret is given one, in a private reply.

What happens on the page behind a link is in `secret_form`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.commands.dependencies import CommandDependencies
from bot.commands.server_definition import ParsedDefinition, deferred_secrets
from bot.commands.text_format import pluralize
from bot.domain.commands import Reply, ReplyAction
from bot.domain.conversations import Author, ConversationKey
from bot.domain.links import LINK_SECONDS
from bot.domain.servers import AUTH_SECRET, USER_SLOT, ServerRecord

PATH = "/secret/"
"""Where the page is; what is in the link comes behind it."""
SWITCH_ON = (
    "The operator can have secrets entered on a page of the bot's own instead, by one-time links: `PUBLIC_URL` "
    "switches them on."
)


class SecretLinks:
    """Gives links out, if the operator has switched them on."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._linking = parts.linking

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self._linking is not None

    def ready(self, draft: ParsedDefinition) -> ParsedDefinition:
        """The draft. A missing secret is not an error where it can be entered later."""
        return deferred_secrets(draft) if self.on else draft

    async def asked(self, record: ServerRecord, by: Author, conversation: ConversationKey, said: str) -> Reply:
        """A reply that asks for the secrets that the record misses: with a link for the first of them, or with the
        command for each where there are no links.
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
        """A reply with a link for this slot, behind what is `said`: Markdown of our own. It is for this person alone,
        and so is the link; the ones they had for the same slot are good no more.
        """
        assert self._linking is not None, "nobody offers links that are switched off"
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
    """The slots of the secrets that a record misses, the one it signs in with first."""
    # A user name is entered together with its password.
    with_password = {USER_SLOT} if AUTH_SECRET in record.missing else set[str]()
    return tuple(sorted(record.missing - with_password, key=lambda slot: (slot != AUTH_SECRET, slot)))


def awaited(record: ServerRecord) -> str:
    """What a server waits for, in a few words."""
    slots = missing_slots(record)
    return "the secret it signs in with" if slots == (AUTH_SECRET,) else pluralize(len(slots), "secret")


def _commands(record: ServerRecord, slots: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("also", f"/mcp secret set {record.config.name} {slot}") for slot in slots)
