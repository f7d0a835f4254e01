"""Block Kit as HTML, near enough to what Slack's own clients draw that one can see whether it reads well.

For `slack.py`. It draws what this program uses of Block Kit, and stops at anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from photographs import marked

Json = dict[str, Any]

STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 14px 18px; width: 700px; background: #fff; color: #1d1c1d;
  font: 15px/1.47 Lato, "Helvetica Neue", Arial, "DejaVu Sans Condensed", "DejaVu Sans",
    "WenQuanYi Zen Hei", sans-serif }
.message { display: flex; gap: 9px; padding: 7px 0 9px }
.avatar { flex: 0 0 36px; height: 36px; border-radius: 6px; background: #1f2937; color: #fff; font-weight: 700;
  text-align: center; line-height: 36px }
.who b { margin-right: 5px } .app { background: #eee; border-radius: 3px; font-size: 10px; padding: 1px 3px;
  color: #616061; vertical-align: 2px } .time, .only { color: #616061; font-size: 12px; margin-left: 6px }
.only { margin: 0 0 2px } .content { flex: 1; min-width: 0 }
.block { margin: 3px 0 7px } .rich { white-space: pre-wrap; overflow-wrap: anywhere }
.small { color: #616061; font-size: 13px; white-space: pre-wrap }
.rich ul, .rich ol { margin: 2px 0; white-space: normal }
.rich li { white-space: pre-wrap } h2 { font-size: 18px; margin: 12px 0 6px }
code { color: #c01343; background: #f7f7f7; border: 1px solid #ddd; border-radius: 3px; padding: 1px 3px;
  font: 12px/1.5 "DejaVu Sans Mono", monospace }
pre { background: #f8f8f8; border: 1px solid #ddd; border-radius: 4px; padding: 8px; margin: 5px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.5 "DejaVu Sans Mono", monospace }
.quote { border-left: 4px solid #ddd; padding-left: 10px; margin: 4px 0 }
a { color: #1264a3; text-decoration: none }
.person { color: #1264a3; background: #e8f5fa; border-radius: 3px; padding: 0 2px }
table { border-collapse: collapse; margin: 5px 0 } td { border: 1px solid #ddd; padding: 5px 10px; vertical-align: top }
hr { border: 0; border-top: 1px solid #ddd; margin: 10px 0 }
.button { display: inline-block; border: 1px solid #bbb; border-radius: 4px; padding: 4px 10px; margin: 2px 6px 4px 0;
  font-size: 13px; font-weight: 700; background: #fff }
.primary { background: #007a5a; border-color: #007a5a; color: #fff }
.danger { background: #e01e5a; border-color: #e01e5a; color: #fff } .thumb { padding: 3px 9px; color: #616061 }
.modal, .home { border: 1px solid #ccc; border-radius: 9px; padding: 0 18px 8px; max-width: 560px }
.modal { box-shadow: 0 6px 20px #0002 } .home { max-width: none } .title { font-size: 18px; font-weight: 800;
  padding: 13px 0 9px; border-bottom: 1px solid #eee; margin-bottom: 9px } .foot { text-align: right; padding: 7px 0 }
.label { font-weight: 700; margin-top: 10px } .optional { font-weight: 400; color: #616061 }
.field { border: 1px solid #999; border-radius: 4px; padding: 6px 9px; min-height: 34px; margin: 3px 0 }
.tall { min-height: 62px } .hint { color: #616061; font-size: 13px } .row { display: flex; gap: 12px }
.row > :first-child { flex: 1 } .dot { display: inline-block; width: 11px; height: 11px; border-radius: 50% }
.gap { height: 6px }
"""


def message(blocks: Iterable[Json], *, only_you: bool = False) -> str:
    """A message of the bot's, as it stands in a thread."""
    note = '<div class="only">Only visible to you</div>' if only_you else ""
    drawn = "".join(map(_block, blocks))
    return (
        '<div class="message"><div class="avatar">C</div><div class="content"><div class="who"><b>Countersign</b>'
        f'<span class="app">APP</span><span class="time">14:05</span></div>{note}{drawn}</div></div>'
    )


def modal(view: Json) -> str:
    """A window."""
    submit = f'<span class="button primary">{_text(view["submit"])}</span>' if "submit" in view else ""
    foot = f'<div class="foot"><span class="button">{_text(view["close"])}</span>{submit}</div>'
    return f'<div class="modal"><div class="title">{_text(view["title"])}</div>{_blocks(view)}{foot}</div>'


def home(view: Json) -> str:
    """The Home tab."""
    return f'<div class="home">{_blocks(view)}</div>'


def page(*drawn: str) -> str:
    """A whole document."""
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
            return f'<div class="field{tall}">{marked(element.get("initial_value", ""))}</div>'
        case "radio_buttons":
            options = ((each["value"] == chosen, _text(each["text"])) for each in element["options"])
            return "".join(f"<div>{'◉' if is_chosen else '○'} {text}</div>" for is_chosen, text in options)
        case "static_select":
            return f'<div class="field">{marked(chosen or "Select an option")} ▾</div>'
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
            return _styled(marked(piece["text"]), piece.get("style", {}))
        case "link":
            return _styled(f"<a>{marked(piece['text'])}</a>", piece.get("style", {}))
        case "user":
            return f'<span class="person">@{escape(piece["user_id"].removeprefix("U0").title())}</span>'
        case "date":
            return "today at 14:35" if "date" in piece["format"] else "14:06"
        case other:
            raise ValueError(other)


def _styled(text: str, style: dict[str, bool]) -> str:
    for name, tag in (("code", "code"), ("strike", "s"), ("italic", "i"), ("bold", "b")):
        text = f"<{tag}>{text}</{tag}>" if style.get(name) else text
    return text


def _text(text: Json) -> str:
    return marked(text["text"])


_DRAWN: dict[str, Callable[[Json], str]] = {
    "rich_text": _rich_text,
    "section": _section,
    "table": _table,
    "actions": _actions,
    "input": _input,
    "context": lambda block: f'<div class="small">{"".join(map(_text, block["elements"]))}</div>',
    "header": lambda block: f"<h2>{_text(block['text'])}</h2>",
    "divider": lambda _block: "<hr>",
    "context_actions": lambda _block: '<span class="button thumb">▲ Good</span><span class="button thumb">▼ Bad</span>',
}
