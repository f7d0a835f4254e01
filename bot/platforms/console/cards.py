"""Cards at a terminal and their keys, one card after the other. Results are printed below the card.

Approval: y once, t in this conversation, g other grants, e edit, v view all if something is left out, n no with a
reason, Enter no. Elicitation: a answer, s show the link, f I have finished, d decline. A key runs an action of the
card, like a button of other platforms. The engine checks the user's rights.

Decided approvals are remembered, because views may be skipped, repeated or older than a decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    OpenDenyForm,
    RunCommandInNewReply,
    ViewCall,
    rejection_message,
)
from bot.chat.card_messages import elicitation_buttons, open_call_buttons, open_elicitation, pending_call
from bot.chat.forms import DenialSubmitted, edit_command
from bot.chat.message_model import Block, Button, Buttons, MenuEntry
from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    ArgumentsScope,
    Decided,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
    ThreadScope,
    ViewRequired,
)
from bot.domain.commands import Reply
from bot.domain.turns import StepStatus, ToolStep, TurnView
from bot.errors import CountersignError
from bot.i18n import _, gettext_lazy, pgettext
from bot.platforms.console.command_runner import CommandRunner
from bot.platforms.console.lines import (
    card_line,
    cells,
    fold,
    full_arguments,
    message_text,
    safe_lines,
    strip_markdown,
)
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.transcript import Piece, PieceKind, TranscriptView
from bot.platforms.console.turn_tracker import await_ready
from bot.ports import Commands, EngineApi
from bot.rendering.approval_card import (
    ApprovalCard,
    approval_card,
    format_grant,
    parse_grant_option,
    remaining_approvals_text,
    whole_card,
)
from bot.rendering.elicitation_card import ANSWER, CONFIRM, DECLINE, VISIT, VISITED, elicitation_card
from bot.rendering.text_safety import single_line

PAGE_MARGIN = 8
VIEW_FIRST = gettext_lazy("Part of this call looks like a secret. View all of it before you approve it.")
GUARDED = gettext_lazy("Part of this call looks like a secret, and is hidden where several people read.")
CHANGED = gettext_lazy("The call has changed since this card was drawn. Not run.")
GONE = gettext_lazy("This approval does not exist any more.")
APPROVING = ("y", "t", "g")
ENTER = "Enter"
_ELICITATION_KEYS = {
    ANSWER: ("a", gettext_lazy("answer…")),
    CONFIRM: ("y", gettext_lazy("yes, go on")),
    VISIT: ("s", gettext_lazy("show the link")),
    VISITED: ("f", gettext_lazy("I have finished")),
    DECLINE: ("d", gettext_lazy("decline")),
}

Key = tuple[str, int]
"""Approval id and revision; elicitation id and 0."""
KeyAction = Action | DenialSubmitted | tuple[MenuEntry, ...]
"""An action of the card, a denial, or the grants to choose one from; none of them leads back to the card's keys."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A card that waits for a key. `card` is None for an elicitation. `guarded` is True if a part of the call looks
    like a secret, so that all of it must be opened before an approval.
    """

    turn_id: str
    key: Key
    blocks: tuple[Block, ...]
    buttons: Buttons
    card: ApprovalCard | None = None
    guarded: bool = False


class CardKeys:
    """Asks about calls, then for answers to servers, first come, first asked. A key can approve a call only after the
    terminal has shown all of it. `spawn` runs an action beside the keys.
    """

    def __init__(
        self,
        transcript: TranscriptView,
        user: LocalUser,
        runner: CommandRunner,
        *,
        engine: Callable[[], Awaitable[EngineApi]],
        commands: Callable[[], Awaitable[Commands]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._transcript = transcript
        self._screen = transcript.screen
        self._theme = transcript.theme
        self._user = user
        self._runner = runner
        self._engine = engine
        self._commands = commands
        self._spawn = spawn
        self._waiting: dict[Key, Prompt] = {}
        self._settled: set[Key] = set()
        self._answered = 0
        """Approvals that are settled since the last time that none waited."""
        self._asked: Key | None = None
        self._pages: list[str] = []
        self._viewed = False
        """True after all pages of the current call were shown."""
        self._choosing: tuple[MenuEntry, ...] = ()
        """Grants on offer, while the user chooses one."""
        self._acting = False
        self._asking = True

    def update(self, view: TurnView, calls: Sequence[ToolStep], *, asking: bool) -> None:
        """Update from a view, of which `calls` are for this user to decide. Nothing new is asked unless `asking` is
        True.
        """
        self._asking = asking
        self._update_approvals(view, calls)
        steps = [step for step in view.steps if isinstance(step, ToolStep)]
        for card in (elicitation_card(step, asked, view) for step in steps for asked in step.elicitations):
            key = (card.elicitation_id, 0)
            if key in self._settled:
                continue
            if not card.outcome:
                blocks = open_elicitation(card, view.turn.author, time())
                prompt = Prompt(view.turn.id, key, blocks, elicitation_buttons(card.offers))
                self._waiting.setdefault(key, prompt)
                continue
            self._remove(key)
            if key != self._asked:
                self._say(f"{card.title}. {card.outcome}", self._theme.dim)
            elif not self._acting:
                self._say(card.outcome, self._theme.dim)
        self._next()

    def _update_approvals(self, view: TurnView, calls: Sequence[ToolStep]) -> None:
        cards = {card.approval_id: (step, card) for step in calls if (card := whole_card(step)) is not None}
        for prompt in [prompt for prompt in self._waiting.values() if prompt.card and prompt.turn_id == view.turn.id]:
            now = cards[prompt.key[0]][1] if prompt.key[0] in cards else None
            is_same = now is None or now.revision == prompt.key[1]
            if view.turn.status.ended or now is None or now.outcome or not is_same:
                self._remove(prompt.key)
                if prompt.key == self._asked and is_same:
                    outcome = now.outcome if now is not None else ""
                    self._say(outcome or _("This call is not wanted any more."), self._theme.dim)
        for step, card in cards.values():
            key = (card.approval_id, card.revision)
            if step.status is StepStatus.AWAITING and not view.turn.status.ended and key not in self._settled:
                is_guarded = (shared := approval_card(step)) is not None and shared.withheld > 0
                blocks, buttons = pending_call(step, card, time()), open_call_buttons(step, card)
                self._waiting.setdefault(key, Prompt(view.turn.id, key, blocks, buttons, card, is_guarded))

    def _remove(self, key: Key) -> None:
        self._settled.add(key)
        prompt = self._waiting.pop(key, None)
        if prompt is not None and prompt.card is not None:
            self._answered = self._answered + 1 if self._count_approvals() else 0

    def _count_approvals(self) -> int:
        return sum(prompt.card is not None for prompt in self._waiting.values())

    @property
    def _current(self) -> Prompt | None:
        asked = self._waiting.get(self._asked) if self._asked is not None else None
        return asked or min(self._waiting.values(), key=lambda prompt: prompt.card is None, default=None)

    def withdraw(self) -> None:
        """Ask for no key until the next view."""
        self._asking = False
        self._forget()

    def _forget(self) -> None:
        self._asked, self._pages, self._viewed, self._choosing = None, [], False, ()
        self._screen.stop_asking()

    def _next(self) -> None:
        """Ask for the first card that waits, unless it is the current one or an action runs."""
        if self._acting:
            return
        prompt = self._current if self._asking else None
        if prompt is None:
            if self._asked is not None:
                self._forget()
            return
        if prompt.key != self._asked:
            self._forget()
            self._asked = prompt.key
            text = message_text(prompt.blocks, self._theme, self._screen.columns)
            self._transcript.print_pieces(Piece(PieceKind.CARD, f"{text}\n{card_line('', self._theme)}"))
            if prompt.guarded:
                self._say(GUARDED, self._theme.warn)
        self._screen.ask(self._lines)

    # Keys

    def answer(self, key: str) -> None:
        """Handle a single key."""
        prompt = self._current
        if prompt is None or self._acting:
            return
        choices = self._choices(prompt)
        actions = [action for choice, _label, action in choices if choice.lower() == key.lower()]
        match actions:
            case [Approve() | ApproveWithGrant() | DenialSubmitted() as action]:
                self._act(prompt, self._decide(prompt, action))
            case [Edit(ref)]:
                self._act(prompt, self._edit(ref))
            case [RunCommandInNewReply(words)]:
                self._act(prompt, self._answer_server(prompt, words))
            case [OpenDenyForm()]:
                self._screen.ask_reason()
            case [ViewCall()] if prompt.card is not None:
                self._view_all(prompt.card)
            case [tuple() as grants]:
                self._choosing = grants
                self._screen.stop_asking()
                self._screen.ask(self._lines)
            case _:
                self._screen.hint(self._hint(prompt, key, [choice for choice, _label, _action in choices]))

    def _hint(self, prompt: Prompt, key: str, choices: Sequence[str]) -> str:
        """Return what to do instead of a key without an action."""
        keys = ", ".join(choice for choice in choices if choice != ENTER)
        if self._choosing:
            return _("One of the numbers, or Enter to go back.")
        if prompt.card is None:
            return _("One key: {keys}. Ctrl-C stops the turn.", keys=keys)
        if key.lower() in APPROVING and self._is_unseen(prompt):
            return str(VIEW_FIRST)
        return _("One key: {keys}, or Enter for no. Ctrl-C stops the turn.", keys=keys)

    def reason(self, text: str) -> None:
        """Handle the reason of a denial; empty for none."""
        if (prompt := self._current) is not None and prompt.card is not None:
            self._act(prompt, self._decide(prompt, DenialSubmitted(ApprovalRef(*prompt.key), text.strip())))

    def _choices(self, prompt: Prompt) -> list[tuple[str, str, KeyAction]]:
        """Return the valid keys with their labels and actions."""
        if self._choosing:
            numbered = [(str(number), entry.label, entry.action) for number, entry in enumerate(self._choosing, 1)]
            return [*numbered, (ENTER, _("back"), ())]
        actions = [button.action for button in prompt.buttons.buttons]
        if prompt.card is None:
            commands = [action for action in actions if isinstance(action, RunCommandInNewReply)]
            return [(*_ELICITATION_KEYS[action.words[0]], action) for action in commands]
        is_unseen = self._is_unseen(prompt)
        view = _("more") if self._pages else _("view all to approve") if is_unseen else _("view all")
        labels: list[tuple[str, str, type[Action]]] = [
            ("y", _("once"), Approve),
            ("t", _("in this conversation"), ApproveWithGrant),
            ("e", _("edit"), Edit),
            ("v", view, ViewCall),
            ("n", _("no, because…"), OpenDenyForm),
        ]
        keys: list[tuple[str, str, KeyAction]] = [
            (key, label, action) for key, label, kind in labels for action in actions if isinstance(action, kind)
        ]
        keys = [key for key in keys if key[0] != "v" or prompt.card.shortened]
        if is_unseen:
            keys = sorted((key for key in keys if key[0] not in APPROVING), key=lambda key: key[0] != "v")
        elif prompt.buttons.more:
            keys.insert(2, ("g", _("allow more…"), prompt.buttons.more))
        return [*keys, (ENTER, pgettext("answer to an approval", "no"), DenialSubmitted(ApprovalRef(*prompt.key), ""))]

    def _is_unseen(self, prompt: Prompt) -> bool:
        return prompt.guarded and prompt.card is not None and prompt.card.shortened and not self._viewed

    def _lines(self, width: int) -> list[str]:
        """Return the keys and their labels, on as many lines as needed."""
        prompt, theme = self._current, self._theme
        keys = self._choices(prompt) if prompt is not None else []
        words = [(f"[{key}]", f" {theme.own_text(str(label))}") for key, label, _action in keys]
        total = self._answered + self._count_approvals()
        if total > 1 and prompt is not None and prompt.card is not None:
            place = _("{number} of {count}", number=self._answered + 1, count=total)
            words.append(("", f"({place})"))
        lines: list[list[tuple[str, str]]] = [[]]
        for word in words:
            if lines[-1] and cells("  ".join(map("".join, (*lines[-1], word)))) > width - 4:
                lines.append([])
            lines[-1].append(word)
        return [
            card_line("  ".join(theme.bold(key) + text if key else theme.dim(text) for key, text in line), theme)
            for line in lines
        ]

    def _view_all(self, card: ApprovalCard) -> None:
        lines = self._pages or full_arguments(card, self._theme, self._screen.columns)
        room = max(self._screen.rows - PAGE_MARGIN, 4)
        visible, self._pages = lines[:room], lines[room:]
        self._viewed |= not self._pages
        self._transcript.print_pieces(Piece(PieceKind.CARD, "\n".join([*visible, card_line("", self._theme)])))
        self._screen.stop_asking()
        self._screen.ask(self._lines)

    # Actions

    def _act(self, prompt: Prompt, work: Coroutine[Any, Any, bool]) -> None:
        """Run an action, during which no key is expected."""
        self._screen.stop_asking()
        self._pages, self._choosing = [], ()
        self._acting = True
        self._spawn(self._finish(prompt, work))

    async def _finish(self, prompt: Prompt, work: Coroutine[Any, Any, bool]) -> None:
        """Ask again about a card, or for the next one if its action has settled it."""
        is_settled = False
        try:
            is_settled = await work
        except CountersignError as error:
            self._say(single_line(str(error), 500), self._theme.error)
        finally:
            self._acting = False
        if is_settled:
            self._remove(prompt.key)
            self._asked = None
        self._next()

    async def _decide(self, prompt: Prompt, action: Approve | ApproveWithGrant | DenialSubmitted) -> bool:
        from bot.chat.interactions import decide  # noqa: PLC0415 - loaded with the runtime, behind the prompt

        engine, theme = await await_ready(self._engine()), self._theme
        result: DecisionResult | ToolStep | None = None
        if prompt.guarded and not isinstance(action, DenialSubmitted):  # that all of the call was seen is recorded
            result = await engine.approvals.open_call(*prompt.key, self._user.member)
        if result is None or isinstance(result, ToolStep):
            result = await decide(engine, action, self._user.member)
        match result:
            case Decided(DecisionType.APPROVE):
                self._say(_approved_text(action), theme.success)
            case Decided():
                reason = action.reason if isinstance(action, DenialSubmitted) else ""
                told = _("Not run. Told the agent: {reason}", reason=reason) if reason else _("Not run.")
                self._say(told, theme.error)
            case MoreApprovalsNeeded(needed):
                self._say(remaining_approvals_text(needed), theme.success)
            case NotAllowed():
                self._say(rejection_message(result), theme.warn)
                self._say(_("Waiting for an approver. Ctrl-C stops the turn."), theme.dim)
            case StaleRevision() | ViewRequired():
                self._say(CHANGED if isinstance(result, StaleRevision) else VIEW_FIRST, theme.warn)
            case AlreadyDecided() | ApprovalNotFound() | None:
                self._say(rejection_message(result) if isinstance(result, AlreadyDecided) else GONE, theme.dim)
        return not isinstance(result, ViewRequired | NotAllowed)

    async def _edit(self, ref: ApprovalRef) -> bool:
        await self._runner.run(await await_ready(self._commands()), edit_command(ref))
        return False

    async def _answer_server(self, prompt: Prompt, words: tuple[str, ...]) -> bool:
        reply = await self._runner.run_dialog(await await_ready(self._commands()), words)
        if reply is None:
            return False
        self._show(reply)
        if reply.actions and prompt.key in self._waiting:
            buttons = tuple(Button(str(action.label), RunCommandInNewReply(action.words)) for action in reply.actions)
            self._waiting[prompt.key] = replace(prompt, buttons=Buttons(buttons))
        return not reply.actions

    def _show(self, reply: Reply) -> None:
        paint = self._theme.warn if reply.failed else str if reply.actions else self._theme.success
        for line in strip_markdown(reply.text).split("\n"):
            if reply.link and "://" in line and " " not in line:
                # Whole, so that it can be opened and copied.
                self._transcript.print_pieces(Piece(PieceKind.CARD, safe_lines(line)))
            elif line:
                self._say(line, paint)
        for name, value in reply.details:
            self._say(f"{name}: {value}", self._theme.dim)

    def _say(self, text: str, paint: Callable[[str], str]) -> None:
        lines = fold(self._theme.own_text(safe_lines(text)), self._screen.columns - 4)
        text = "\n".join(card_line(paint(line), self._theme) for line in lines)
        self._transcript.print_pieces(Piece(PieceKind.CARD, text))


def _approved_text(action: Approve | ApproveWithGrant | DenialSubmitted) -> str:
    """Return the text of an approval. A grant is for a conversation where other platforms have threads."""
    grant = parse_grant_option(action.offer) if isinstance(action, ApproveWithGrant) else None
    match grant.scope if grant is not None else None:
        case None:
            return _("Approved.")
        case ThreadScope():
            text = _("allowed in this conversation until it goes unused for an hour")
        case ArgumentsScope():
            text = _("this very call allowed in this conversation until it goes unused for an hour")
        case scope:
            return _("Approved, and {grant}", grant=format_grant(scope))
    return _("Approved, and {grant}", grant=f"{text} · /mcp grants list")
