"""Modals for the reason of a denial and for a question about a message.

A modal must be the first response to an interaction, within three seconds, so building one sends no request. Its
context is in its id, for any process that receives the submission.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import discord

from bot.chat.actions import ApprovalRef
from bot.platforms.discord.ids import MessageRef

DENY, ASK = "cs.deny", "cs.ask"
REASON, QUESTION = "reason", "question"
LONGEST_REASON, LONGEST_QUESTION = 500, 2_000
DENYING = "The call will not be run. The assistant learns of it and goes on without it."


@dataclass(frozen=True, slots=True)
class DenyForm:
    """Deny this call."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class AskAboutMessage:
    """Ask about this message."""

    about: MessageRef


def deny_modal(card: ApprovalRef) -> discord.ui.Modal:
    """Return the modal for an optional reason."""
    modal = _modal("Deny", f"{DENY}:{card.approval_id}:{card.revision}")
    modal.add_item(discord.ui.TextDisplay(DENYING))
    modal.add_item(
        discord.ui.Label(
            text="Reason",
            description="The assistant reads it, and may try another way.",
            component=_lines(REASON, LONGEST_REASON, required=False),
        )
    )
    return modal


def question_modal(about: MessageRef) -> discord.ui.Modal:
    """Return the modal for a question about a message."""
    modal = _modal("Ask about this", f"{ASK}:{about}")
    modal.add_item(
        discord.ui.Label(
            text="What do you want to know about it?", component=_lines(QUESTION, LONGEST_QUESTION, required=True)
        )
    )
    return modal


def read_modal(custom_id: str) -> DenyForm | AskAboutMessage | None:
    """Return the context of a submitted modal, or None if it is of another kind."""
    kind, _, rest = custom_id.partition(":")
    match kind, rest.split(":"):
        case "cs.deny", [approval_id, revision] if re.fullmatch(r"[0-9]{1,9}", revision):
            return DenyForm(ApprovalRef(approval_id, int(revision)))
        case "cs.ask", _ if (about := MessageRef.parse(rest)) is not None:
            return AskAboutMessage(about)
        case _:
            return None


def _modal(title: str, custom_id: str) -> discord.ui.Modal:
    modal = discord.ui.Modal(title=title, custom_id=custom_id)
    modal.stop()  # or discord.py would keep it for good: what is sent is read from its id
    return modal


def _lines(name: str, longest: int, *, required: bool) -> discord.ui.TextInput[Any]:
    return discord.ui.TextInput(
        custom_id=name, style=discord.TextStyle.paragraph, max_length=longest, required=required
    )
