"""Cards at a terminal and their keys, one card after the other. Results are printed below the card.

Approval: y once, t in this conversation, g other grants, e edit, v view all if something is left out, n no with a
reason, Enter no. Elicitation: a answer, s show the link, f I have finished, d decline. A key runs an action of the
card, like a button of other platforms. The engine checks the user's rights.

Decided approvals are remembered, because views may be skipped, repeated or older than a decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any, assert_never

from bot.chat.actions import ApprovalRef
from bot.chat.card_messages import open_elicitation, pending_call
from bot.chat.forms import ArgumentEditForms, ElicitationForms, edit_command
from bot.chat.message_model import Block
from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    ArgumentsScope,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    Scope,
    StaleRevision,
    ThreadScope,
    ViewRequired,
)
from bot.domain.commands import Reply
from bot.domain.conversations import Author
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, ToolStep, TurnView
from bot.errors import CountersignError
from bot.i18n import _, gettext_lazy, pgettext
from bot.platforms.console.lines import (
    ConsoleTheme,
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
from bot.platforms.console.typed_lines import CommandRunner
from bot.ports import Commands, EngineApi
from bot.rendering.approval_card import (
    ApprovalCard,
    GrantOption,
    approval_card,
    can_edit,
    format_grant,
    grant_offers,
    remaining_approvals_text,
    whole_card,
)
from bot.rendering.elicitation_card import ANSWER, CONFIRM, DECLINE, VISIT, VISITED, ElicitationCard, elicitation_card
from bot.rendering.text_safety import single_line

Key = tuple[str, int]

PAGE_MARGIN = 8
VIEW_FIRST = gettext_lazy("Part of this call looks like a secret. View all of it before you approve it.")
GUARDED = gettext_lazy("Part of this call looks like a secret, and is hidden where several people read.")
APPROVING = ("y", "t", "g")
_YES = DecisionType.APPROVE
_KEYS = {
    ANSWER: ("a", gettext_lazy("answer…")),
    CONFIRM: ("y", gettext_lazy("yes, go on")),
    VISIT: ("s", gettext_lazy("show the link")),
    VISITED: ("f", gettext_lazy("I have finished")),
    DECLINE: ("d", gettext_lazy("decline")),
}


@dataclass(frozen=True, slots=True)
class ApprovalPrompt:
    """A card that waits for a key."""

    turn_id: str
    card: ApprovalCard
    offers: tuple[GrantOption, ...] = ()
    """Grants to offer with the approval."""
    editable: bool = False
    """Its arguments can be changed before."""
    blocks: tuple[Block, ...] = ()
    """The call as it is shown."""
    guarded: bool = False
    """True if a part looks like a secret, so that the whole call must be opened before an approval."""

    @property
    def key(self) -> Key:
        """Approval id and revision."""
        return self.card.approval_id, self.card.revision


class ApprovalQueue:
    """First come, first asked."""

    def __init__(self) -> None:
        self._waiting: dict[Key, ApprovalPrompt] = {}
        self._settled: set[Key] = set()
        self._answered = 0

    @property
    def current(self) -> ApprovalPrompt | None:
        """Approval to ask for now; None if the queue is empty."""
        return next(iter(self._waiting.values()), None)

    @property
    def place(self) -> str:
        """Position, as `1 of 2`; empty for a single approval."""
        total = self._answered + len(self._waiting)
        return _("{number} of {count}", number=self._answered + 1, count=total) if total > 1 else ""

    def update(self, view: TurnView, steps: list[ToolStep]) -> list[ApprovalCard]:
        """Update from a view, of which `steps` are the calls to ask about. Return the cards of approvals that ended by
        other means, with their outcomes.
        """
        cards = {card.approval_id: card for step in steps if (card := whole_card(step)) is not None}
        ended = [self._end(prompt, cards) for prompt in self._prompts_of(view) if self._is_over(prompt, view, cards)]
        for step in steps:
            card = cards.get(step.approval.id) if step.approval else None
            if card is None or step.status is not StepStatus.AWAITING or view.turn.status.ended:
                continue
            guarded = (shared := approval_card(step)) is not None and shared.withheld > 0
            blocks = pending_call(step, card, time())
            prompt = ApprovalPrompt(view.turn.id, card, grant_offers(step), can_edit(step), blocks, guarded)
            if prompt.key not in self._settled:
                self._waiting.setdefault(prompt.key, prompt)
        return ended

    def remove(self, prompt: ApprovalPrompt) -> None:
        """Remove an approval that needs no key."""
        self._settled.add(prompt.key)
        if self._waiting.pop(prompt.key, None) is not None:
            self._answered = self._answered + 1 if self._waiting else 0

    def _prompts_of(self, view: TurnView) -> list[ApprovalPrompt]:
        return [prompt for prompt in self._waiting.values() if prompt.turn_id == view.turn.id]

    def _is_over(self, prompt: ApprovalPrompt, view: TurnView, cards: dict[str, ApprovalCard]) -> bool:
        now = cards.get(prompt.card.approval_id)
        return view.turn.status.ended or now is None or bool(now.outcome) or now.revision != prompt.card.revision

    def _end(self, prompt: ApprovalPrompt, cards: dict[str, ApprovalCard]) -> ApprovalCard:
        self.remove(prompt)
        return cards.get(prompt.card.approval_id, prompt.card)


class ApprovalActions:
    """Runs the actions of keys. A key can approve a call only after the terminal has shown all of it. `engine` and
    `commands` are set by the application once they are ready.
    """

    def __init__(
        self,
        user: LocalUser,
        runner: CommandRunner,
        engine: Callable[[], Awaitable[EngineApi]],
        commands: Callable[[], Awaitable[Commands]],
    ) -> None:
        self._user = user
        self._runner = runner
        self._engine = engine
        self._commands = commands

    async def decide(self, prompt: ApprovalPrompt, verdict: DecisionType, reason: str) -> DecisionResult:
        """Approve or deny a call."""
        engine = await await_ready(self._engine())
        approval_id, revision = prompt.key
        decision = Decision(approval_id, revision, verdict, self._user.author, reason)
        if verdict is DecisionType.APPROVE and (refusal := await self._record_opening(prompt, engine)) is not None:
            return refusal
        return await engine.approvals.decide(decision, self._user.member)

    async def allow(self, prompt: ApprovalPrompt, permission: GrantRequest) -> DecisionResult:
        """Approve a call and grant later ones."""
        engine = await await_ready(self._engine())
        approval_id, revision = prompt.key
        decision = Decision(approval_id, revision, DecisionType.APPROVE, self._user.author)
        if (refusal := await self._record_opening(prompt, engine)) is not None:
            return refusal
        return await engine.approvals.grant(decision, permission, self._user.member)

    async def _record_opening(self, prompt: ApprovalPrompt, engine: EngineApi) -> DecisionResult | None:
        """Record that the user has seen the whole call. Return the rejection if the user may not see it, else None."""
        if not prompt.guarded:
            return None
        call = await engine.approvals.open_call(*prompt.key, self._user.member)
        return None if isinstance(call, ToolStep) else call

    async def change(self, prompt: ApprovalPrompt) -> None:
        """Edit a call in its form."""
        forms = ArgumentEditForms(await await_ready(self._engine()), await await_ready(self._commands()))
        command, *words = edit_command(ApprovalRef(*prompt.key))
        await self._runner.run(forms, command, tuple(words))

    async def send(self, words: Words) -> Reply | None:
        """Send the action of an elicitation to the engine and fill in its form, if any."""
        forms = ElicitationForms(await await_ready(self._engine()), await await_ready(self._commands()))
        return await self._runner.run_dialog(forms, words)


Words = tuple[str, ...]
Spawn = Callable[[Coroutine[Any, Any, None]], object]
Deciding = Callable[[], Awaitable[DecisionResult]]


@dataclass(frozen=True, slots=True)
class _PendingCard:
    """A card that waits for a key."""

    author: Author
    card: ElicitationCard


class ElicitationKeys:
    """Asks the elicitations of servers. `spawn` runs an action beside the keys, `done` is called after the last
    elicitation.
    """

    def __init__(
        self,
        transcript: TranscriptView,
        theme: ConsoleTheme,
        actions: ApprovalActions,
        spawn: Spawn,
        done: Callable[[], None],
    ) -> None:
        self._transcript = transcript
        self._screen = transcript.screen
        self._theme = theme
        self._actions = actions
        self._spawn = spawn
        self._done = done
        self._waiting: dict[str, _PendingCard] = {}
        self._settled: set[str] = set()
        self._current: _PendingCard | None = None
        self._offers: tuple[Words, ...] = ()
        self._saying = False

    @property
    def busy(self) -> bool:
        """True while a key is expected or a form is open."""
        return self._current is not None

    def update(self, view: TurnView, *, asking: bool) -> None:
        """Update from a view. Nothing new is asked unless `asking` is True."""
        for card in (
            elicitation_card(step, elicitation, view) for step in _calls(view) for elicitation in step.elicitations
        ):
            self._add(_PendingCard(view.turn.author, card))
        if asking and self._current is None and (first := next(iter(self._waiting.values()), None)) is not None:
            self._current = first
            self._offers = tuple(offer.words for offer in first.card.offers)
            blocks = open_elicitation(first.card, first.author, time())
            text = message_text(blocks, self._theme, self._screen.columns)
            self._transcript.print_pieces(Piece(PieceKind.CARD, f"{text}\n{card_line('', self._theme)}"))
            self._ask()

    def withdraw(self) -> None:
        """Ask for no key until the next view."""
        if self._current is not None and not self._saying:
            self._current = None
            self._screen.stop_asking()

    def answer(self, key: str) -> None:
        """Handle a single key."""
        if self._current is None or self._saying:
            return
        words = next((offer for offer in self._offers if _KEYS[offer[0]][0] == key.lower()), None)
        if words is None:
            keys = ", ".join(_KEYS[offer[0]][0] for offer in self._offers)
            self._screen.hint(_("One key: {keys}. Ctrl-C stops the turn.", keys=keys))
            return
        self._screen.stop_asking()
        self._saying = True
        self._spawn(self._act(self._current, words))

    def _add(self, new: _PendingCard) -> None:
        elicitation_id = new.card.elicitation_id
        if elicitation_id in self._settled:
            return
        if not new.card.outcome:
            self._waiting.setdefault(elicitation_id, new)
            return
        self._settled.add(elicitation_id)
        self._waiting.pop(elicitation_id, None)
        if self._is_asked(elicitation_id):
            if not self._saying:
                self._tell(new.card.outcome, self._theme.dim)
                self._finish()
        else:
            self._tell(f"{new.card.title}. {new.card.outcome}", self._theme.dim)

    def _is_asked(self, elicitation_id: str) -> bool:
        return self._current is not None and self._current.card.elicitation_id == elicitation_id

    async def _act(self, pending: _PendingCard, words: Words) -> None:
        try:
            reply = await self._actions.send(words)
        except CountersignError as error:
            self._tell(single_line(str(error), 500), self._theme.error)
            reply = None
        finally:
            self._saying = False
        if not self._is_asked(pending.card.elicitation_id):
            return
        if reply is None and pending.card.elicitation_id not in self._settled:
            self._ask()
            return
        if reply is not None:
            self._show(reply)
            if reply.actions:
                self._offers = tuple(action.words for action in reply.actions)
                self._ask()
                return
        self._settled.add(pending.card.elicitation_id)
        self._waiting.pop(pending.card.elicitation_id, None)
        self._finish()

    def _finish(self) -> None:
        self._current = None
        self._screen.stop_asking()
        self._done()

    def _ask(self) -> None:
        self._screen.ask(self._keys)

    def _keys(self, _width: int) -> list[str]:
        """Return the keys and their actions."""
        keys = [_KEYS[offer[0]] for offer in self._offers]
        return [
            card_line(
                "  ".join(f"{self._theme.bold(f'[{key}]')} {self._theme.own_text(effect)}" for key, effect in keys),
                self._theme,
            )
        ]

    def _show(self, reply: Reply) -> None:
        paint = self._theme.warn if reply.failed else str if reply.actions else self._theme.success
        for line in strip_markdown(reply.text).split("\n"):
            if reply.link and "://" in line and " " not in line:
                self._transcript.print_pieces(
                    Piece(PieceKind.CARD, safe_lines(line))
                )  # whole, so that it can be opened and copied
            elif line:
                self._tell(line, paint)
        for name, value in reply.details:
            self._tell(f"{name}: {value}", self._theme.dim)

    def _tell(self, text: str, paint: Callable[[str], str]) -> None:
        self._transcript.print_pieces(_card_text(text, paint, self._theme, self._screen.columns))


def _card_text(text: str, paint: Callable[[str], str], theme: ConsoleTheme, width: int) -> Piece:
    lines = fold(theme.own_text(safe_lines(text)), width - 4)
    return Piece(PieceKind.CARD, "\n".join(card_line(paint(line), theme) for line in lines))


def _format_grant(scope: Scope) -> str:
    """Return the text of a grant, which is for a conversation where other platforms have threads."""
    match scope:
        case ThreadScope():
            text = _("allowed in this conversation until it goes unused for an hour")
        case ArgumentsScope():
            text = _("this very call allowed in this conversation until it goes unused for an hour")
        case _:
            return format_grant(scope)
    return f"{text} · /mcp grants list"


def _calls(view: TurnView) -> tuple[ToolStep, ...]:
    return tuple(step for step in view.steps if isinstance(step, ToolStep))


class CardKeys:
    """Asks about calls. `spawn` runs an action beside the keys."""

    def __init__(self, transcript: TranscriptView, theme: ConsoleTheme, actions: ApprovalActions, spawn: Spawn) -> None:
        self._transcript = transcript
        self._screen = transcript.screen
        self._theme = theme
        self._actions = actions
        self._spawn = spawn
        self._queue = ApprovalQueue()
        self._asked: Key | None = None
        self._pages: list[str] = []
        self._viewed = False
        """True after all pages of the current call were shown."""
        self._choosing: tuple[GrantOption, ...] = ()
        """Grants on offer, while the user chooses one."""
        self._deciding = False
        self._asking = True

    @property
    def busy(self) -> bool:
        """True while a key is expected or its action runs."""
        return self._asked is not None

    def update(self, view: TurnView, calls: list[ToolStep], *, asking: bool) -> None:
        """Update from a view, of which `calls` are for this user to decide. Nothing new is asked unless `asking` is
        True.
        """
        self._asking = asking
        for removed in self._queue.update(view, calls):
            if self._asked == (removed.approval_id, removed.revision):
                self._say(removed.outcome or _("This call is not wanted any more."), self._theme.dim)
        self._next()

    def withdraw(self) -> None:
        """Ask for no key until the next view."""
        self._asking = False
        self._forget()

    def _forget(self) -> None:
        self._asked = None
        self._pages = []
        self._viewed = False
        self._choosing = ()
        self._screen.stop_asking()

    def answer(self, key: str) -> None:
        """Handle a single key."""
        prompt = self._queue.current
        if prompt is None:
            return
        if self._choosing:
            self._choose(prompt, key)
            return
        key = key.lower()
        if key in APPROVING and self._unseen(prompt):
            self._screen.hint(str(VIEW_FIRST))
        else:
            self._act(prompt, key)

    def _act(self, prompt: ApprovalPrompt, key: str) -> None:
        match key:
            case "y":
                self._settle(prompt, DecisionType.APPROVE, "")
            case "t" if prompt.offers:
                self._grant(prompt, prompt.offers[0])
            case "g" if prompt.offers[1:]:
                self._offer(prompt.offers[1:])
            case "e" if prompt.editable:
                self._edit(prompt)
            case "enter":
                self._settle(prompt, DecisionType.DENY, "")
            case "n":
                self._screen.ask_reason()
            case "v" if prompt.card.shortened:
                self._view_all(prompt)
            case _:
                keys = ", ".join(choice for choice, _label in self._choices(prompt) if choice != "Enter")
                self._screen.hint(_("One key: {keys}, or Enter for no. Ctrl-C stops the turn.", keys=keys))

    def _choose(self, prompt: ApprovalPrompt, key: str) -> None:
        """Handle a key of the choice of grants."""
        if key == "enter":
            self._offer(())
        elif key.isdecimal() and 0 < int(key) <= len(self._choosing):
            self._grant(prompt, self._choosing[int(key) - 1])
        else:
            self._screen.hint(_("One of the numbers, or Enter to go back."))

    def _offer(self, offers: tuple[GrantOption, ...]) -> None:
        """Ask which grant to add; without `offers` return to the card's keys."""
        self._choosing = offers
        self._screen.stop_asking()
        self._ask()

    def reason(self, text: str) -> None:
        """Handle the reason of a denial; empty for none."""
        if (prompt := self._queue.current) is not None:
            self._settle(prompt, DecisionType.DENY, text.strip())

    def _next(self) -> None:
        """Ask for the first pending approval, unless it is the current one."""
        prompt = self._queue.current if self._asking else None
        if prompt is None:
            if self._asked is not None:
                self._forget()
            return
        if self._asked == prompt.key:
            if not self._deciding:
                self._ask()
            return
        self._forget()
        self._asked = prompt.key
        text = message_text(prompt.blocks, self._theme, self._screen.columns)
        self._transcript.print_pieces(Piece(PieceKind.CARD, f"{text}\n{card_line('', self._theme)}"))
        if prompt.guarded:
            self._say(GUARDED, self._theme.warn)
        self._ask()

    def _ask(self) -> None:
        self._screen.ask(self._keys)

    def _keys(self, width: int) -> list[str]:
        """Return the keys and their actions, on as many lines as needed."""
        prompt = self._queue.current
        keys = self._choices(prompt) if prompt is not None else []
        words = [(f"[{key}] {self._theme.own_text(effect)}", f"[{key}]") for key, effect in keys]
        if self._queue.place:
            words.append((f"({self._queue.place})", ""))
        lines: list[list[tuple[str, str]]] = [[]]
        for word in words:
            if lines[-1] and cells("  ".join(text for text, _key in (*lines[-1], word))) > width - 4:
                lines.append([])
            lines[-1].append(word)
        return [card_line("  ".join(self._key(*word) for word in line), self._theme) for line in lines]

    def _choices(self, prompt: ApprovalPrompt) -> list[tuple[str, str]]:
        """Return the valid keys and their actions."""
        if self._choosing:
            numbered = [(str(number), str(offer.label)) for number, offer in enumerate(self._choosing, 1)]
            return [*numbered, ("Enter", _("back"))]
        if self._unseen(prompt):
            view = ("v", _("more") if self._pages else _("view all to approve"))
            return [view, *self._edit_key(prompt), *self._denial_keys()]
        allow = [("t", _("in this conversation"))] if prompt.offers else []
        more = [("g", _("allow more…"))] if prompt.offers[1:] else []
        view_all = [("v", _("more") if self._pages else _("view all"))] if prompt.card.shortened else []
        return [("y", _("once")), *allow, *more, *self._edit_key(prompt), *view_all, *self._denial_keys()]

    def _edit_key(self, prompt: ApprovalPrompt) -> list[tuple[str, str]]:
        return [("e", _("edit"))] if prompt.editable else []

    def _denial_keys(self) -> list[tuple[str, str]]:
        return [("n", _("no, because…")), ("Enter", pgettext("answer to an approval", "no"))]

    def _key(self, text: str, key: str) -> str:
        return self._theme.bold(key) + text.removeprefix(key) if key else self._theme.dim(text)

    def _view_all(self, prompt: ApprovalPrompt) -> None:
        lines = self._pages or full_arguments(prompt.card, self._theme, self._screen.columns)
        room = max(self._screen.rows - PAGE_MARGIN, 4)
        visible, self._pages = lines[:room], lines[room:]
        self._viewed |= not self._pages
        self._transcript.print_pieces(Piece(PieceKind.CARD, "\n".join([*visible, card_line("", self._theme)])))
        self._screen.stop_asking()
        self._ask()

    def _unseen(self, prompt: ApprovalPrompt) -> bool:
        return prompt.guarded and prompt.card.shortened and not self._viewed

    def _edit(self, prompt: ApprovalPrompt) -> None:
        """Edit the call in its form; no key is expected meanwhile."""
        self._screen.stop_asking()
        self._pages = []
        self._deciding = True
        self._spawn(self._save_edit(prompt))

    async def _save_edit(self, prompt: ApprovalPrompt) -> None:
        try:
            await self._actions.change(prompt)
        except CountersignError as error:
            self._say(single_line(str(error), 500), self._theme.error)
        finally:
            self._deciding = False
        self._ask_again(prompt)
        self._next()

    def _settle(self, prompt: ApprovalPrompt, verdict: DecisionType, reason: str) -> None:
        text = _("Not run. Told the agent: {reason}", reason=reason) if reason else _("Not run.")
        deciding = partial(self._actions.decide, prompt, verdict, reason)
        self._send(prompt, deciding, _("Approved.") if verdict is _YES else text)

    def _grant(self, prompt: ApprovalPrompt, offer: GrantOption) -> None:
        text = _("Approved, and {grant}", grant=_format_grant(offer.permission.scope))
        self._send(prompt, partial(self._actions.allow, prompt, offer.permission), text)

    def _send(self, prompt: ApprovalPrompt, deciding: Deciding, text: str) -> None:
        """Send a decision to the engine; print the text if it takes effect."""
        self._screen.stop_asking()
        self._pages = []
        self._choosing = ()
        self._deciding = True
        self._spawn(self._print_result(prompt, deciding, text))

    async def _print_result(
        self, prompt: ApprovalPrompt, deciding: Callable[[], Awaitable[DecisionResult]], text: str
    ) -> None:
        try:
            result = await deciding()
            self._deciding = False
        except CountersignError as error:
            self._deciding = False
            self._say(single_line(str(error), 500), self._theme.error)
            self._ask_again(prompt)
            return
        match result:
            case Decided(verdict):
                self._say(text, self._theme.success if verdict is _YES else self._theme.error)
            case MoreApprovalsNeeded(needed):
                self._say(remaining_approvals_text(needed), self._theme.success)
            case AlreadyDecided(how):
                self._say(single_line(how, 300), self._theme.dim)
            case StaleRevision():
                self._say(_("The call has changed since this card was drawn. Not run."), self._theme.warn)
            case ApprovalNotFound():
                self._say(_("This approval does not exist any more."), self._theme.dim)
            case ViewRequired():
                self._say(VIEW_FIRST, self._theme.warn)
                self._ask_again(prompt)
                return
            case NotAllowed(why):
                self._say(single_line(why, 300), self._theme.warn)
                self._say(_("Waiting for an approver. Ctrl-C stops the turn."), self._theme.dim)
                self._ask_again(prompt)
                return
            case _:
                assert_never(result)
        self._queue.remove(prompt)
        self._asked = None
        self._next()

    def _ask_again(self, prompt: ApprovalPrompt) -> None:
        if self._asked == prompt.key:
            self._ask()

    def _say(self, text: str, paint: Callable[[str], str]) -> None:
        self._transcript.print_pieces(_card_text(text, paint, self._theme, self._screen.columns))
