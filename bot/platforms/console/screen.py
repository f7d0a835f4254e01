"""Screen of the terminal: a permanent prompt, moving lines above it, and final text above those.

One prompt_toolkit application runs from the banner to the exit, so that keys are read in one place, text typed during
an answer stays in the prompt, and the library handles resizing. Independent of turns.

Final text is printed within one pass of the event loop: erase the application's lines, write, redraw below. No other
output can come between.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from bot.admin.servers.token_detection import looks_like_token
from bot.domain.commands import Verb
from bot.domain.secrets import looks_like_secret
from bot.i18n import _
from bot.platforms.console.lines import ConsoleTheme, card_line, remark
from bot.platforms.console.typed_lines import COMMANDS
from bot.rendering.text_safety import single_line

QUIET_SECONDS = 0.5
ONE_KEY_SECONDS = 0.05
INPUT_ROWS = 8
MENU_ROWS = 12
ROOMY_COLUMNS = 50
_STYLE = Style.from_dict(
    {
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar": "noinherit",
    }
)


class InputHandler(Protocol):
    """Handler of the user's input."""

    def line(self, text: str) -> None:
        """Handle a sent line."""

    def interrupt(self) -> None:
        """Handle Ctrl-C."""

    def leave(self) -> None:
        """Handle Ctrl-D in an empty prompt or instead of a key."""

    def answer(self, key: str) -> None:
        """Handle an expected key: a character, `enter`, or empty for any other one."""

    def reason(self, text: str) -> None:
        """Handle the line for `ask_reason` or `ask_text`."""

    def withdraw(self) -> None:
        """Handle Escape or Ctrl-D in `ask_text`."""


class Screen:
    """Draws and reads. `source` gives the moving lines for a width; `listener` must be set before `run`."""

    def __init__(
        self,
        *,
        theme: ConsoleTheme,
        history: History,
        completer: Completer,
        terminal: tuple[Input, Output],
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self.listener: InputHandler
        self.source: Callable[[int], list[str]] = lambda _width: []
        self._theme = theme
        self._quiet = quiet_seconds
        self._hint = ""
        self._asked: Callable[[int], list[str]] | None = None
        self._asked_at = 0.0
        self._armed = False
        self._last_key = 0.0
        self._before_last_key = 0.0
        self._armed_at = 0.0
        self._left: int | None = None
        self._typed_ahead = False
        self._drawing = -1
        self._drawn: list[str] = []
        self._is_command = Condition(lambda: self._typed.text.startswith("/") and "\n" not in self._typed.text)
        self._typed = Buffer(
            name="typed",
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=self._is_command,
        )
        self._typed.on_text_changed += lambda _buffer: self.hint("")
        self._reason = Buffer(name="reason", multiline=False)
        self._label = ""
        self._hidden = False
        self._search = SearchToolbar(ignore_case=True)
        self._prompt = Window(
            BufferControl(self._typed, search_buffer_control=self._search.control, preview_search=True),
            get_line_prefix=lambda line, wrapped: ANSI("  " if line or wrapped else theme.prompt),
            wrap_lines=True,
            height=Dimension(min=1, max=INPUT_ROWS),
            dont_extend_height=True,
        )
        self._question = Window(
            FormattedTextControl(lambda: ANSI("\n".join(self._question_lines())), focusable=True, show_cursor=False),
            height=lambda: Dimension(
                min=1, preferred=len(self._question_lines()), max=len(self._question_lines()) or 1
            ),
        )
        dots = ConditionalProcessor(PasswordProcessor(theme.own_text("•")), Condition(lambda: self._hidden))
        self._why = Window(
            BufferControl(self._reason, input_processors=[dots]), get_line_prefix=self._why_prefix, height=1
        )
        self._app: Application[int] = Application(
            layout=Layout(self._layout(), focused_element=self._prompt),
            key_bindings=self._keys(),
            style=_STYLE,
            include_default_pygments_style=False,
            erase_when_done=True,
            color_depth=None if theme.colour else ColorDepth.DEPTH_1_BIT,
            input=terminal[0],
            output=terminal[1],
        )
        self._app.key_processor.before_key_press += lambda _processor: self._on_key()

    @property
    def columns(self) -> int:
        """Width of the terminal in columns."""
        return max(self._app.output.get_size().columns, 8)

    @property
    def rows(self) -> int:
        """Height of the terminal in rows."""
        return max(self._app.output.get_size().rows, 2)

    @property
    def text(self) -> str:
        """Text in the prompt."""
        return self._typed.text

    @property
    def asking(self) -> bool:
        """True while a key or a reason is expected and the prompt is hidden."""
        return self._armed or self._app.layout.has_focus(self._why)

    async def run(self) -> int:
        """Read keys and render until `leave`; return its exit code. The terminal is restored afterwards."""
        if self._left is not None:
            return self._left
        try:
            return await self._app.run_async(pre_run=self._begin_reading, handle_sigint=False)
        except EOFError:
            return 0

    def _begin_reading(self) -> None:
        self._typed_ahead = True
        # A timer that is due runs after the first read, which takes what was typed before.
        asyncio.get_running_loop().call_later(0, setattr, self, "_typed_ahead", False)

    def leave(self, code: int) -> None:
        """End `run` with an exit code."""
        if self._left is None:
            self._left = code
            if self._app.is_running:
                self._app.exit(result=code)

    def print(self, text: str) -> None:
        """Print final lines above the moving ones. Raises OSError if the terminal is closed."""
        output = self._app.output
        if self._app.is_running:
            self._app.renderer.erase()
        output.write_raw(text)
        output.flush()
        self.refresh()

    def refresh(self) -> None:
        """Schedule a redraw of the moving lines."""
        self._app.invalidate()

    def hint(self, text: str) -> None:
        """Show one dim line above the prompt until the next input."""
        self._hint = text
        self.refresh()

    def prefill(self, text: str) -> None:
        """Insert text at the beginning of the prompt."""
        both = "\n".join(part for part in (text, self._typed.text) if part)
        self._typed.document = Document(both, len(both))

    def clear(self) -> None:
        """Clear the prompt."""
        self._typed.reset()

    def ask(self, lines: Callable[[int], list[str]]) -> None:
        """Ask for one key; `lines` returns the text for a width. Waits until the user has paused typing and had time to
        read, to prevent an accidental answer.
        """
        if self._asked is None:
            self._asked_at = asyncio.get_running_loop().time()
        self._asked = lines
        self.refresh()
        self._arm()

    def ask_reason(self) -> None:
        """Ask for a line of text instead of a key."""
        self._armed = False
        self._hint = ""
        self._reason.reset()
        self._app.layout.focus(self._why)
        self.refresh()

    def ask_text(self, label: str, value: str = "", *, hidden: bool = False) -> None:
        """Ask for a line with an initial value; `hidden` masks it by dots. Cards wait until `stop_text`."""
        self._armed = False
        self._label, self._hidden = label, hidden
        self._reason.reset(Document(value, len(value)))
        self._app.layout.focus(self._why)
        self.refresh()

    def stop_text(self) -> None:
        """Stop `ask_text` and discard the text."""
        self._label, self._hidden, self._hint = "", False, ""
        self._reason.reset()
        self._app.layout.focus(self._prompt)
        self.refresh()
        self._arm()

    def stop_asking(self) -> None:
        """Return to the prompt and its text."""
        self._asked = None
        self._armed = False
        if self._label:
            return
        self._hint = ""
        self._app.layout.focus(self._prompt)
        self.refresh()

    def _arm(self) -> None:
        if self._asked is None or self._armed or self._app.layout.has_focus(self._why):
            return
        loop = asyncio.get_running_loop()
        wait = max(self._last_key, self._asked_at) + self._quiet - loop.time()
        if wait > 0:
            loop.call_later(wait, self._arm)
            return
        self._armed = True
        self._armed_at = loop.time()
        self._app.layout.focus(self._question)
        self.refresh()

    def _on_key(self) -> None:
        self._before_last_key, self._last_key = self._last_key, asyncio.get_running_loop().time()

    # Layout

    def _layout(self) -> FloatContainer:
        armed = Condition(lambda: self._armed)
        reasoning = has_focus(self._reason)
        moving = Window(
            FormattedTextControl(lambda: ANSI("\n".join(self._lines()))),
            height=lambda: Dimension(min=0, preferred=len(self._lines()), max=len(self._lines())),
            dont_extend_height=True,
        )
        rows = HSplit(
            [
                moving,
                ConditionalContainer(self._question, armed),
                ConditionalContainer(self._why, reasoning),
                ConditionalContainer(self._prompt, ~armed & ~reasoning),
                self._search,
                ConditionalContainer(Window(height=self._menu_height), has_completions),
                Window(height=Dimension(min=0, preferred=0)),
            ]
        )
        menu = CompletionsMenu(max_height=MENU_ROWS, display_arrows=False)
        return FloatContainer(rows, [Float(menu, xcursor=True, ycursor=True)])

    def _lines(self) -> list[str]:
        if self._drawing != self._app.render_counter or not self._app.is_running:
            self._drawing, self._drawn = self._app.render_counter, self._fresh_lines()
        return self._drawn

    def _fresh_lines(self) -> list[str]:
        lines = self.source(self.columns)
        if self._hint:
            hint = remark(self._theme.own_text(self._hint), self.columns, self._theme.dim)
            lines = [*lines[:-1], *hint.split("\n"), *lines[-1:]]
        room = max(self.rows - min(self._typed.document.line_count, INPUT_ROWS) - 2, 1)
        if len(lines) > room:
            lines = [self._theme.dim(self._theme.own_text("  …")), *lines[len(lines) - room + 1 :]]
        return lines

    def _question_lines(self) -> list[str]:
        return self._asked(self.columns) if self._asked is not None else []

    def _menu_height(self) -> Dimension:
        state = self._typed.complete_state
        return Dimension(preferred=min(len(state.completions), MENU_ROWS) if state is not None else 0)

    def _why_prefix(self, _line: int, _wrapped: int) -> StyleAndTextTuples:
        if self._label:
            return to_formatted_text(ANSI(self._theme.bold(f"{self._label}: ")))
        label = _("reason (optional):") if self.columns >= ROOMY_COLUMNS else _("why?")
        return to_formatted_text(ANSI(f"{card_line('', self._theme)} {label} "))

    # Keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        armed = Condition(lambda: self._armed)
        typing = has_focus(self._typed)
        reasoning = has_focus(self._reason)
        empty = Condition(lambda: not self._typed.text)
        keys.add("enter", filter=typing)(self._enter)
        keys.add("tab", filter=typing)(self._complete)
        keys.add("backspace", filter=typing & self._is_command)(self._delete_in_command)
        keys.add("escape", filter=typing & has_completions)(lambda event: event.current_buffer.cancel_completion())
        keys.add("c-j", filter=typing)(self._newline)
        keys.add("escape", "enter", filter=typing)(self._newline)
        keys.add("enter", filter=reasoning)(lambda _event: self.listener.reason(self._reason.text))
        texting = reasoning & Condition(lambda: bool(self._label))
        keys.add("c-d", filter=reasoning & ~texting)(lambda _event: self.listener.reason(self._reason.text))
        keys.add("escape", filter=reasoning & ~texting)(lambda _event: self._back_to_key())
        keys.add("c-d", filter=texting)(lambda _event: self.listener.withdraw())
        keys.add("escape", filter=texting)(lambda _event: self.listener.withdraw())
        keys.add("c-d", filter=typing & empty)(lambda _event: self.listener.leave())
        keys.add("c-c", eager=True)(lambda _event: self.listener.interrupt())
        keys.add("<sigint>")(lambda _event: self.listener.interrupt())
        keys.add("c-d", filter=armed, eager=True)(lambda _event: self.listener.leave())
        keys.add(Keys.Any, filter=armed, eager=True)(self._answer)
        keys.add("enter", filter=armed, eager=True)(self._answer)
        return keys

    def _back_to_key(self) -> None:
        """Return from the reason to the keys without a denial."""
        self._app.layout.focus(self._prompt)
        self._arm()

    def _enter(self, event: KeyPressEvent) -> None:
        """Send the line; a backslash before the cursor makes a line break instead."""
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
            return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
        buffer.reset()
        self.listener.line(text)

    def _complete(self, event: KeyPressEvent) -> None:
        """Complete the common prefix, then go through the menu. The library would do it in a task, too late for a menu
        that is about to open.
        """
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.complete_index is not None:
            buffer.complete_next()
            return
        request = CompleteEvent(completion_requested=True)
        completions = list(buffer.completer.get_completions(buffer.document, request))
        if len(completions) == 1:
            buffer.apply_completion(completions[0])
        elif suffix := get_common_complete_suffix(buffer.document, completions):
            buffer.insert_text(suffix)
        elif completions:
            buffer.start_completion(select_first=True)

    def _delete_in_command(self, event: KeyPressEvent) -> None:
        """Delete a character, and open the menu again: the library opens it for typed characters only."""
        buffer = event.current_buffer
        buffer.delete_before_cursor()
        if self._is_command():
            buffer.start_completion()

    def _newline(self, event: KeyPressEvent) -> None:
        """Begin a line. Before the program reads single keys, the terminal turns Enter into this key: it sends."""
        if self._typed_ahead and event.key_sequence[0].key is Keys.ControlJ:
            self._enter(event)
        else:
            event.current_buffer.newline(copy_margin=False)

    def _answer(self, event: KeyPressEvent) -> None:
        pressed = event.key_sequence[0]
        if pressed.key is Keys.CPRResponse:
            return
        # A pasted key comes together with others.
        before = self._before_last_key
        slow = before < self._armed_at or self._last_key - before >= ONE_KEY_SECONDS
        if not (slow and not self._app.key_processor.input_queue):
            self.listener.answer("")
        elif pressed.key is Keys.ControlM:
            self.listener.answer("enter")
        else:
            self.listener.answer(pressed.data if len(pressed.data) == 1 and pressed.data.isprintable() else "")


def output_without_queries(stdout: TextIO) -> Output:
    """Return the terminal's output without cursor queries: their answers would mix with the input, and a terminal that
    does not say where its cursor is would get a warning.
    """
    output = create_output(stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


# -------------------- history
# The file is readable by its owner only. Lines that seem to contain a secret are not written.

HISTORY_LINES = 1000
_SECRET_ARGUMENTS = re.compile(
    r"(?:^\s*/mcp\s+secret\s+(?:set|rotate)\s+\S+\s+\S+\s+|--secret[\s=]+|--(?:header|env)[\s=]+[^\s=]+=)[\"']?(\S+)",
    re.IGNORECASE,
)


class LineHistory(History):
    """One JSON string a line, oldest first. Without a readable and writable file no line is remembered."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of earlier sessions, newest first, as prompt_toolkit expects."""
        if self._path is None:
            return []
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line for encoded in reversed(text.splitlines()[-HISTORY_LINES:]) if (line := _parse_line(encoded))]

    def store_string(self, string: str) -> None:
        """Append a line unless it contains a secret."""
        if (
            self._path is None
            or looks_like_secret(string)
            or looks_like_token(string)
            or any(not re.match(r"(env|file):", match[1]) for match in _SECRET_ARGUMENTS.finditer(string))
        ):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(string) + "\n")
        except OSError:
            self._path = None


def _parse_line(encoded: str) -> str:
    try:
        line = json.loads(encoded)
    except ValueError:
        return ""
    return line if isinstance(line, str) else ""


class SlashCompleter(Completer):
    """Completes the last word of a line that begins with a slash, for the menu that opens with it."""

    def __init__(self) -> None:
        self.more: Callable[[str], Sequence[str]] = lambda _text: ()
        """Completer of whole command lines without the slash; empty until the commands are ready."""
        self.verbs: Mapping[str, Sequence[Verb]] = {}
        """Verbs by command, which describe the words of a line; empty until the commands are ready."""
        self.conversations: Mapping[str, str] = {}
        """Titles of the conversations that `/open` continues, by id."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the matching words."""
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word = text.rsplit(" ", maxsplit=1)[-1]
        for offer, about in (self._words(text, word) if " " in text else COMMANDS).items():
            if offer.casefold().startswith(word.casefold()):
                yield Completion(
                    offer, start_position=-len(word), display=single_line(offer, 40), display_meta=str(about)
                )

    def _words(self, text: str, word: str) -> Mapping[str, str]:
        """Return the candidates for the last word."""
        if text.casefold().startswith("/open "):
            return {name: single_line(title, 60) for name, title in self.conversations.items()}
        words = text.removeprefix("/")
        before = len(words) - len(word)
        candidates = [line[before:].split(" ")[0] for line in self.more(words) if line[before:]]
        command, *earlier = words[:before].split()
        return {candidate: self._about(command, [*earlier, candidate]) for candidate in candidates}

    def _about(self, command: str, words: Sequence[str]) -> str:
        """Describe a word by its verb: the summary of the verb, or the second words of several. Empty for a value."""
        path = " ".join(words)
        verbs = self.verbs.get(command, ())
        if (verb := next((verb for verb in verbs if verb.path == path), None)) is not None:
            return str(verb.summary)
        return ", ".join(verb.path.removeprefix(f"{path} ") for verb in verbs if verb.path.startswith(f"{path} "))
