"""A command on its way: from the typed line through forms and confirmations to the answer that is drawn.

Called by the chat. What commands mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bot.domain.commands import Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.platforms.console.form_prompt import FormCancelled, FormPrompt
from bot.platforms.console.lazy_renderer import LazyRenderer
from bot.platforms.console.lines import strip_markdown
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.transcript import Piece, PieceKind
from bot.platforms.console.transcript_view import TranscriptView
from bot.ports import Commands
from bot.rendering.text_safety import single_line

LEFT = "Nothing was changed."
LONGEST_NEWS = 300
"""Characters of what a command says while it is under way; the page shows what fits into the window."""


class CommandRunner:
    """Runs commands. `here` is the conversation that is open."""

    def __init__(
        self, person: LocalUser, page: TranscriptView, typesetting: LazyRenderer, here: Callable[[], ConversationKey]
    ) -> None:
        self._person = person
        self._page = page
        self._typesetting = typesetting
        self._here = here
        self.filling = FormPrompt(page)

    async def run(self, commands: Commands, command: str, words: tuple[str, ...]) -> InboundMessage | None:
        """Say a command and draw what comes of it; a message that is to be handed to the engine, if there is one."""
        asked: Invocation | FormSubmission = self._said((command, *words))
        before: dict[str, str] = {}
        try:
            while True:
                last = await self._last(commands, asked)
                if isinstance(last, Form):
                    before = await self.filling.fill(last, before)
                    asked = self._sent(last, before)
                    continue
                if last is None or last.message is not None:
                    return last.message if last is not None else None
                action = next((each for each in last.actions if each.confirm), None)
                if action is None:
                    self._draw(last)
                    return None
                # Its name is asked for below: a line that has it already would say the same once more.
                self._draw(replace(last, actions=tuple(each for each in last.actions if not each.confirm)))
                asked = self._said((*action.words, "--confirm", await self._confirmed(action)))
        except FormCancelled:
            self._page.notice(LEFT)
            return None

    async def run_dialog(self, commands: Commands, words: tuple[str, ...]) -> Reply | None:
        """Say what a key on a card stands for, and fill in what form comes of it; the last reply, which is not drawn.
        None if the person has left the form.
        """
        asked: Invocation | FormSubmission = self._said(words)
        before: dict[str, str] = {}
        try:
            while isinstance(last := await self._last(commands, asked), Form):
                before = await self.filling.fill(last, before)
                asked = self._sent(last, before)
        except FormCancelled:
            self._page.notice(LEFT)
            return None
        return last

    async def _last(self, commands: Commands, asked: Invocation | FormSubmission) -> Reply | Form | None:
        """The last answer; the ones before it say what is going on."""
        self._page.busy = "Working…"
        last: Reply | Form | None = None
        async for last in commands.handle(asked):
            if isinstance(last, Reply):
                self._page.busy = single_line(strip_markdown(last.text), LONGEST_NEWS) or "Working…"
        self._page.busy = ""
        return last

    async def _confirmed(self, action: ReplyAction) -> str:
        typed = await self.filling.line(
            f"Type {single_line(action.confirm, 80)} to confirm", f"{action.label}, or nothing"
        )
        if not typed:
            raise FormCancelled
        return typed

    def _said(self, words: tuple[str, ...]) -> Invocation:
        return Invocation(words[0], words[1:], self._person.member, self._here(), self._person.operator)

    def _sent(self, form: Form, values: dict[str, str]) -> FormSubmission:
        return FormSubmission(form.id, values, self._person.member, self._here(), self._person.operator)

    def _draw(self, reply: Reply) -> None:
        self._page.put(Piece(PieceKind.TEXT, self._typesetting.reply(reply, self._page.screen.columns)))
