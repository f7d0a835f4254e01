"""Reply to a command: text and buttons as a value, and as Discord components.

Replies use Components V2 throughout, because an edit cannot remove that flag. A button carries its action, or a token
if the action exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import discord

from bot.chat.actions import OpenConfirmation, RunCommand
from bot.domain.commands import ActionStyle, Form, ReplyFile
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.action_codec import ResumePending, encode
from bot.platforms.discord.escaping import escape, shorten_label
from bot.platforms.discord.limits import BUTTON_LABEL, BUTTONS_A_ROW, DISPLAYED, ROWS
from bot.platforms.discord.pending_actions import ConfirmCommand, Deed, OpenForm, SendMessage
from bot.rendering.text_safety import single_line

V2 = 1 << 15
"""IS_COMPONENTS_V2 among the flags of a message."""

_STYLES = {
    ActionStyle.PLAIN: discord.ButtonStyle.secondary,
    ActionStyle.PRIMARY: discord.ButtonStyle.primary,
    ActionStyle.DANGER: discord.ButtonStyle.danger,
}
View = discord.ui.LayoutView


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Leave Discord for a page, without telling the bot."""

    address: str


@dataclass(frozen=True, slots=True)
class Button:
    """A button below a reply: runs a command, asks for a confirmation, or opens a form or a page."""

    label: str
    does: RunCommand | OpenConfirmation | Form | OpenLink
    tone: ActionStyle = ActionStyle.PLAIN


@dataclass(frozen=True, slots=True)
class CommandReply:
    """An answer as it is shown, of at most DISPLAYED characters. `documents` go along with it as files."""

    text: str
    buttons: tuple[Button, ...] = ()
    documents: tuple[ReplyFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CustomIdAllocator:
    """Allocates tokens for one user's buttons. `where` is the conversation of the actions; if `here` is True, the
    buttons are in it, so that a click identifies it.
    """

    issue: Callable[[Deed, str], str]
    holder: str
    where: ConversationKey
    here: bool = True

    def custom_id(self, does: RunCommand | OpenConfirmation | Form, taken: Iterable[str]) -> str:
        """Return the `custom_id` of a button, unique in its message."""
        if isinstance(does, RunCommand) and self.here and (found := encode(does)) is not None and found not in taken:
            return found
        return self.ticket(does)

    def ticket(self, does: RunCommand | OpenConfirmation | Form) -> str:
        """Return a new token for a button or a form."""
        return str(ResumePending(self.issue(self._deed(does), self.holder)))

    def _deed(self, does: RunCommand | OpenConfirmation | Form) -> Deed:
        match does:
            case RunCommand(words):
                return SendMessage(words, self.where)
            case OpenConfirmation(words, text, label):
                return ConfirmCommand(words, text, label, self.where)
            case Form():
                return OpenForm(does, self.where)


def layout(sheet: CommandReply, issuing: CustomIdAllocator) -> View:
    """Return a reply as components. The view has no listeners: any process that receives a click decodes it from the
    button.
    """
    view = View(timeout=None)
    view.add_item(discord.ui.TextDisplay(sheet.text[:DISPLAYED]))
    taken: list[str] = []
    row: discord.ui.ActionRow[View] = discord.ui.ActionRow()
    for each in sheet.buttons[: BUTTONS_A_ROW * ROWS]:
        if len(row.children) % BUTTONS_A_ROW == 0:
            row = discord.ui.ActionRow()
            view.add_item(row)
        label = shorten_label(each.label, BUTTON_LABEL) or "…"
        if isinstance(each.does, OpenLink):
            row.add_item(discord.ui.Button(label=label, url=each.does.address))
            continue
        taken.append(issuing.custom_id(each.does, taken))
        row.add_item(discord.ui.Button(label=label, style=_STYLES[each.tone], custom_id=taken[-1]))
    view.stop()
    return view


def note_layout(text: str) -> View:
    """Return one plain sentence as components."""
    view = View(timeout=None)
    view.add_item(discord.ui.TextDisplay(escape(single_line(text, DISPLAYED // 2)) or "…"))
    view.stop()
    return view


def message(view: View) -> dict[str, Any]:
    """Return the body of a message with a view, for the bot's token, without notifications."""
    components: list[dict[str, Any]] = view.to_components()  # type: ignore[no-untyped-call]
    return {"components": components, "flags": V2, "allowed_mentions": {"parse": []}}
