"""Block Kit as HTML, similar enough to Slack's clients to judge its readability.

For `slack.py`. Only the parts of Block Kit that this program uses are supported; others raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from bot.i18n import current_language

Json = dict[str, Any]

STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 12px 20px; width: 700px; background: #fff; color: #1d1c1d;
  font: 15px/1.46668 Lato, "Noto Sans JP", Twemoji, sans-serif; -webkit-font-smoothing: antialiased }
.message { display: flex; gap: 8px; padding: 8px 0 }
.avatar { flex: 0 0 36px; height: 36px; border-radius: 8px; background: #1f2937; color: #fff; font-weight: 900;
  text-align: center; line-height: 36px } .user { background: #2b7a5c }
.place { display: flex; align-items: baseline; gap: 8px; margin: 0 -20px 8px; padding: 2px 20px 10px;
  border-bottom: 1px solid #dddddd } .place b { font-size: 18px; font-weight: 900 } .place span { color: #616061;
  font-size: 13px } .event { display: flex; align-items: center; gap: 12px; color: #616061; font-size: 13px;
  font-weight: 700; margin: 12px 0 8px } .event:before, .event:after { content: ""; flex: 1;
  border-top: 1px solid #dddddd }
.who { line-height: 22px } .who b { font-weight: 900; margin-right: 4px }
.app { background: #ebeaeb; border-radius: 2px; font-size: 10px; font-weight: 700; padding: 1px 3px; color: #454447;
  vertical-align: 1px } .time { color: #616061; font-size: 12px; margin-left: 8px }
.only { color: #616061; font-size: 13px; margin: 0 0 4px } .content { flex: 1; min-width: 0; max-width: 600px }
.block { margin: 4px 0 8px } .rich { white-space: pre-wrap; overflow-wrap: anywhere }
.small { color: #454447; font-size: 13px; line-height: 18px; white-space: pre-wrap }
.rich ul, .rich ol { margin: 0; padding-left: 28px; white-space: normal } .rich li { white-space: pre-wrap }
h2 { font-size: 18px; font-weight: 900; line-height: 1.333; margin: 16px 0 4px }
code { color: #c01343; background: #f8f8f8; border: 1px solid #dddddd; border-radius: 3px; padding: 2px 3px 1px;
  font: 12px/1.5 "Roboto Mono", "DejaVu Sans Mono", monospace }
pre { background: #f8f8f8; border: 1px solid #dddddd; border-radius: 4px; padding: 8px; margin: 4px 0;
  white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12px/1.50001 "Roboto Mono", "DejaVu Sans Mono", "Noto Sans JP", Twemoji, monospace }
.quote { border-left: 4px solid #dddddd; border-radius: 4px; padding-left: 12px; margin: 4px 0 }
a { color: #1264a3; text-decoration: none }
.person { color: #1264a3; background: #1d9bd11a; border-radius: 3px; padding: 0 2px 1px }
table { border-collapse: separate; border-spacing: 0; border: 1px solid #dddddd; border-radius: 8px; margin: 4px 0 }
td { border-bottom: 1px solid #dddddd; border-right: 1px solid #dddddd; padding: 8px 12px; vertical-align: top }
tr:last-child td { border-bottom: 0 } td:last-child { border-right: 0 }
hr { border: 0; border-top: 1px solid #dddddd; margin: 8px 0 }
.button { display: inline-block; border: 1px solid #bbbabb; border-radius: 8px; height: 28px; line-height: 26px;
  padding: 0 10px; margin: 4px 8px 0 0; font-size: 13px; font-weight: 700; background: #fff }
.primary { background: #007a5a; border-color: #007a5a; color: #fff }
.danger { background: #fff; border-color: #e01e5a; color: #e01e5a } .thumb { color: #454447; padding: 0 9px }
.modal, .home { border: 1px solid #dddddd; border-radius: 12px; padding: 0 24px; max-width: 520px }
.modal { box-shadow: 0 0 0 1px #1d1c1d21, 0 18px 48px #00000059; border: 0; margin: 8px 0 24px }
.home { max-width: none; border: 0; padding: 0 }
.title { font-size: 22px; font-weight: 900; line-height: 30px; padding: 20px 0 12px }
.foot { text-align: right; padding: 20px 0 24px } .foot .button { height: 36px; line-height: 34px; padding: 0 12px;
  font-size: 15px; margin: 0 0 0 12px; min-width: 80px; text-align: center }
.label { font-weight: 700; margin-top: 16px } .optional { font-weight: 400; color: #616061 }
.field { border: 1px solid #868686; border-radius: 8px; padding: 8px 12px; min-height: 44px; margin: 8px 0;
  font-size: 18px; line-height: 27px } .tall { min-height: 88px } .hint { color: #616061; font-size: 13px }
.row { display: flex; gap: 12px } .row > :first-child { flex: 1 } .gap { height: 8px }
"""


def place(channel: str) -> str:
    """Return the line above a thread."""
    title = "スレッド" if current_language() == "ja" else "Thread"
    return f'<div class="place"><b>{title}</b><span>#{escape(channel)}</span></div>'


def said(name: str, text: str) -> str:
    """Return a user's message that mentions the bot."""
    return (
        f'<div class="message"><div class="avatar user">{escape(name[0])}</div><div class="content"><div class="who">'
        f'<b>{escape(name)}</b><span class="time">14:05</span></div><div class="rich">'
        f'<span class="person">@Countersign</span> {escape(text)}</div></div></div>'
    )


def event(text: str) -> str:
    """Return a line between two states of a thread."""
    return f'<div class="event">{escape(text)}</div>'


def message(blocks: Iterable[Json], *, only_you: bool = False) -> str:
    """Return a message of the bot in a thread."""
    note = '<div class="only">Only visible to you</div>' if only_you else ""
    drawn = "".join(map(_block, blocks))
    return (
        '<div class="message"><div class="avatar">C</div><div class="content"><div class="who"><b>Countersign</b>'
        f'<span class="app">APP</span><span class="time">14:05</span></div>{note}{drawn}</div></div>'
    )


def modal(view: Json) -> str:
    """Return a modal."""
    submit = f'<span class="button primary">{_text(view["submit"])}</span>' if "submit" in view else ""
    foot = f'<div class="foot"><span class="button">{_text(view["close"])}</span>{submit}</div>'
    return f'<div class="modal"><div class="title">{_text(view["title"])}</div>{_blocks(view)}{foot}</div>'


def home(view: Json) -> str:
    """Return the Home tab."""
    return f'<div class="home">{_blocks(view)}</div>'


def page(*drawn: str) -> str:
    """Return a whole document."""
    body = '<div class="gap"></div>'.join(drawn)
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><body>{body}</body>"


def _blocks(view: Json) -> str:
    return "".join(map(_block, view["blocks"]))


def _block(block: Json) -> str:
    drawn = _DRAWN[block["type"]](block)
    return f'<div class="block">{drawn}</div>'


def _section(block: Json) -> str:
    return f'<div class="rich">{_text(block["text"])}</div>'


def _table(block: Json) -> str:
    sides = [each["align"] for each in block["column_settings"]]
    rows = (
        "".join(f'<td style="text-align:{side}">{_rich_text(cell)}</td>' for side, cell in zip(sides, row, strict=True))
        for row in block["rows"]
    )
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _actions(block: Json) -> str:
    return "".join(map(_button, block["elements"]))


def _button(element: Json) -> str:
    match element["type"]:
        case "button":
            return f'<span class="button {element.get("style", "")}">{_text(element["text"])}</span>'
        case "overflow":
            return '<span class="button">⋯</span>'
        case other:
            raise ValueError(other)


def _input(block: Json) -> str:
    element, label = block["element"], _text(block["label"])
    optional = ' <span class="optional">(optional)</span>' if block["optional"] else ""
    hint = f'<div class="hint">{_text(block["hint"])}</div>' if "hint" in block else ""
    return f'<div class="label">{label}{optional}</div>{_field(element)}{hint}'


def _field(element: Json) -> str:
    chosen = element.get("initial_option", {}).get("value")
    match element["type"]:
        case "plain_text_input":
            tall = " tall" if element["multiline"] else ""
            return f'<div class="field{tall}">{escape(element.get("initial_value", ""))}</div>'
        case "radio_buttons":
            options = ((each["value"] == chosen, _text(each["text"])) for each in element["options"])
            return "".join(f"<div>{'◉' if is_chosen else '○'} {text}</div>" for is_chosen, text in options)
        case "static_select":
            return f'<div class="field">{escape(chosen or "Select an option")} ▾</div>'
        case other:
            raise ValueError(other)


def _rich_text(block: Json) -> str:
    return f'<div class="rich">{"".join(map(_part, block["elements"]))}</div>'


def _part(part: Json) -> str:
    match part["type"]:
        case "rich_text_list":
            tag = "ol" if part["style"] == "ordered" else "ul"
            items = "".join(f"<li>{_pieces(each)}</li>" for each in part["elements"])
            margin = 26 * part.get("indent", 0)
            return f'<{tag} start="{part.get("offset", 0) + 1}" style="margin-left:{margin}px">{items}</{tag}>'
        case "rich_text_preformatted":
            return f"<pre>{_pieces(part)}</pre>"
        case "rich_text_quote":
            return f'<div class="quote">{_pieces(part)}</div>'
        case _:
            return f"<div>{_pieces(part)}</div>"


def _pieces(part: Json) -> str:
    return "".join(map(_piece, part["elements"]))


def _piece(piece: Json) -> str:
    match piece["type"]:
        case "text":
            return _styled(escape(piece["text"]), piece.get("style", {}))
        case "link":
            return _styled(f"<a>{escape(piece['text'])}</a>", piece.get("style", {}))
        case "user":
            return f'<span class="person">@{escape(piece["user_id"].removeprefix("U0").title())}</span>'
        case "channel":
            return '<span class="person">#incidents</span>'
        case "date":
            today = "今日" if current_language() == "ja" else "today"
            time = "14:35" if "date" in piece["format"] else "14:06"
            return str(piece["format"]).replace("{date_short_pretty}", today).replace("{time}", time)
        case other:
            raise ValueError(other)


def _styled(text: str, style: dict[str, bool]) -> str:
    for name, tag in (("code", "code"), ("strike", "s"), ("italic", "i"), ("bold", "b")):
        text = f"<{tag}>{text}</{tag}>" if style.get(name) else text
    return text


def _text(text: Json) -> str:
    return escape(text["text"])


_DRAWN: dict[str, Callable[[Json], str]] = {
    "rich_text": _rich_text,
    "section": _section,
    "table": _table,
    "actions": _actions,
    "input": _input,
    "context": lambda block: f'<div class="small">{"".join(map(_text, block["elements"]))}</div>',
    "header": lambda block: f"<h2>{_text(block['text'])}</h2>",
    "divider": lambda _block: "<hr>",
    "context_actions": lambda _block: '<span class="button thumb">👍</span><span class="button thumb">👎</span>',
}
