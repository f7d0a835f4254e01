"""One-time links as people get them in a chat: who asks for a place to enter a secret is given one, in a private reply.

What happens on the page behind a link is in `secret_entry`.
"""

from __future__ import annotations

from bot.commands.definitions import Drafted, entered_later
from bot.commands.parts import CommandParts
from bot.domain.commands import Action, Reply
from bot.domain.conversations import Author, ConversationKey
from bot.domain.links import LINK_SECONDS
from bot.domain.servers import ServerRecord

PATH = "/secret/"
"""Where the page is; what is in the link comes behind it."""
SWITCH_ON = (
    "The operator can have secrets entered on a page of the bot's own instead, by one-time links: `PUBLIC_URL` "
    "switches them on."
)


class SecretLinks:
    """Gives links out, if the operator has switched them on."""

    def __init__(self, parts: CommandParts) -> None:
        self._linking = parts.linking

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self._linking is not None

    def ready(self, draft: Drafted, before: ServerRecord | None = None) -> Drafted:
        """The draft, which is to be kept instead of `before`; a secret that nobody has said anything of is no mistake
        where it can be entered later.
        """
        return entered_later(draft, before) if self.on else draft

    async def offered(
        self, record: ServerRecord, slot: str, by: Author, conversation: ConversationKey, said: str
    ) -> Reply:
        """A reply with a link for this slot, behind what is `said`: Markdown of our own. It is for this person alone,
        and so is the link; the ones they had for the same slot are good no more.
        """
        assert self._linking is not None, "nobody offers links that are switched off"
        _, token = await self._linking.store.make(record.id, slot, by, conversation)
        address = f"{self._linking.address}{PATH}{token}"
        minutes = int(LINK_SECONDS // 60)
        return Reply(
            f"{said} [Enter the secret]({address}). The link works once, for {minutes} minutes, for you: keep it to "
            "yourself.",
            details=(("secret", slot),),
            actions=(Action("Another link", ("mcp", "secret", "set", record.config.name, slot)),),
        )
