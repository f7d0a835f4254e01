"""Discord's messages as HTML, near enough to what its own clients draw in their dark look that one can see whether they
read well.

For `discord_pictures.py`. It draws what this program uses of Discord's Markdown and components, and stops at anything
else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from photographs import marked

Json = dict[str, Any]

STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 12px 18px; width: 700px; background: #313338; color: #dbdee1;
  font: 15px/1.4 "gg sans", "Noto Sans", "Helvetica Neue", Arial, "DejaVu Sans Condensed",
    "DejaVu Sans", "WenQuanYi Zen Hei", sans-serif }
.place { color: #f2f3f5; font-weight: 700; border-bottom: 1px solid #26272b; padding: 0 0 9px; margin-bottom: 4px }
.place i { color: #80848e; font-style: normal; margin-right: 7px }
.message { display: flex; gap: 14px; padding: 7px 8px; margin: 0 -8px; border-radius: 4px }
.private { background: #393b53; border-left: 2px solid #5865f2 }
.avatar { flex: 0 0 40px; height: 40px; border-radius: 50%; background: #23a559; color: #fff; font-weight: 700;
  text-align: center; line-height: 40px } .bot { background: #1f2937 }
.who b { color: #f2f3f5; margin-right: 5px } .app { background: #5865f2; border-radius: 3px; font-size: 10px;
  font-weight: 700; padding: 1px 4px; color: #fff; vertical-align: 2px }
.time { color: #949ba4; font-size: 12px; margin-left: 7px } .only { color: #949ba4; font-size: 12px; margin-top: 4px }
.only a { color: #00a8fc } .content { flex: 1; min-width: 0 } .text { white-space: pre-wrap; overflow-wrap: anywhere }
.small { color: #949ba4; font-size: 12px } h1, h2, h3 { color: #f2f3f5; margin: 2px 0 4px; line-height: 1.3 }
h1 { font-size: 22px } h2 { font-size: 19px } h3 { font-size: 16px }
code { background: #2b2d31; border-radius: 3px; padding: 1px 3px; font: 13px/1.4 "DejaVu Sans Mono", monospace }
pre { background: #2b2d31; border: 1px solid #1e1f22; border-radius: 4px; padding: 8px; margin: 5px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.35 "DejaVu Sans Mono", monospace }
.box pre, .box code { background: #1e1f22 } .quote { border-left: 4px solid #4e5058; padding-left: 10px }
.item { display: flex } .item > span:first-child { flex: 0 0 22px; text-align: right; padding-right: 8px }
a { color: #00a8fc; text-decoration: none }
.person { color: #c9cdfb; background: #3c4270; border-radius: 3px; padding: 0 2px }
.moment { background: #3f4147; border-radius: 3px; padding: 0 2px }
.box { background: #2b2d31; border: 1px solid #3f4147; border-left: 4px solid; border-radius: 4px; max-width: 600px;
  padding: 10px 14px; margin: 4px 0 } .box > * + * { margin-top: 7px }
hr { border: 0; border-top: 1px solid #4e5058; margin: 9px 0 } .row { margin-top: 5px }
.button { display: inline-block; border-radius: 4px; padding: 5px 13px; margin: 2px 8px 3px 0; font-size: 14px;
  font-weight: 500; color: #fff } .look1 { background: #5865f2 } .look2 { background: #4e5058 }
.look3 { background: #248046 } .look4 { background: #da373c } .look5 { background: #4e5058 }
.look5:after { content: " ↗" }
.file { display: inline-block; background: #2b2d31; border: 1px solid #1e1f22; border-radius: 4px; margin: 5px 0;
  padding: 9px 14px; color: #00a8fc } .file span { color: #949ba4; font-size: 12px; display: block }
.modal { background: #313338; border: 1px solid #26272b; border-radius: 6px; max-width: 460px; padding: 0 16px 6px;
  box-shadow: 0 6px 22px #0009 } .title { font-size: 19px; font-weight: 700; color: #f2f3f5; padding: 14px 0 6px }
.label { color: #f2f3f5; font-weight: 600; margin-top: 12px } .label s { color: #da373c; text-decoration: none }
.hint { color: #b5bac1; font-size: 13px } .field { background: #1e1f22; border-radius: 3px; padding: 8px 10px;
  min-height: 38px; margin: 4px 0 } .tall { min-height: 70px } .foot { text-align: right; padding: 14px 0 6px }
.menu { color: #949ba4; max-width: 400px } .menu span { float: right }
.foot .button { margin: 0 0 0 8px; padding: 7px 22px } .dot { display: inline-block; width: 11px; height: 11px;
  border-radius: 50% } .gap { height: 14px }
"""
_THUMBS = {"👍": "▲", "👎": "▼"}
_FENCE = re.compile(r"```(?:[A-Za-z0-9_+.#-]+(?=\n))?\n?(.*?)\n?```", re.DOTALL)
_INLINE = re.compile(
    r"""
      \\(?P<plain>[^\w\s])
    | (?P<ticks>`+)(?P<code>.+?)(?P=ticks)
    | \*\*(?P<bold>.+?)\*\*(?!\*)
    | ~~(?P<struck>.+?)~~
    | \*(?P<italic>[^*\s](?:.*?[^*\s])?)\*
    | \[(?P<label>(?:\\.|[^\]\\])+)\]\(<(?P<target>[^>]+)>\)
    | <@(?P<person>\d+)> | <t:\d+:(?P<moment>[tR])> | <(?P<link>https?://[^>]+)> | (?P<bare>https?://[^\s<]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"( *)(-|\d+\.) (.*)")
_MOMENTS = {"R": "in 30 minutes", "t": "14:06"}

Names = Mapping[str, str]
"""What people are called, by their ids."""


def place(name: str) -> str:
    """The line above a thread."""
    return f'<div class="place"><i>#</i>{marked(name)}</div>'


def said(name: str, text: str, names: Names) -> str:
    """A message of a person's."""
    return _message(name, "", "", _markdown(text, names), private=False)


def answered(message: Json, names: Names) -> str:
    """A message of the bot's, as Discord describes it."""
    body = _markdown(message["content"], names) if message["content"] else ""
    files = "".join(map(_file, message.get("attachments", ())))
    private = bool(message["flags"] & 1 << 6)
    body += files + "".join(_component(each, names) for each in message["components"])
    return _message("Countersign", " bot", '<span class="app">APP</span>', body, private=private)


def modal(drawn: Json) -> str:
    """A form, as it was opened."""
    inside = "".join(map(_field, drawn["components"]))
    foot = '<div class="foot"><span class="button look2">Cancel</span><span class="button look1">Submit</span></div>'
    return f'<div class="modal"><div class="title">{marked(drawn["title"])}</div>{inside}{foot}</div>'


def page(*drawn: str) -> str:
    """A whole document."""
    body = '<div class="gap"></div>'.join(drawn)
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><body>{body}</body>"


def _message(name: str, kind: str, mark: str, body: str, *, private: bool) -> str:
    only = '<div class="only">Only you can see this • <a>Dismiss message</a></div>' if private else ""
    return (
        f'<div class="message{" private" if private else ""}"><div class="avatar{kind}">{escape(name[0])}</div>'
        f'<div class="content"><div class="who"><b>{escape(name)}</b>{mark}<span class="time">14:05</span></div>'
        f"{body}{only}</div></div>"
    )


def _file(attached: Json) -> str:
    size = f"{attached['size'] / 1024:.1f} KB"
    return f'<div class="file">{marked(attached["filename"])}<span>{size}</span></div>'


# Components


def _component(given: Json, names: Names) -> str:
    match given["type"]:
        case 1:
            return f'<div class="row">{"".join(map(_pressable, given["components"]))}</div>'
        case 10:
            return _markdown(given["content"], names)
        case 14:
            return "<hr>"
        case 17:
            inside = "".join(f"<div>{_component(each, names)}</div>" for each in given["components"])
            return f'<div class="box" style="border-left-color:#{given["accent_color"]:06x}">{inside}</div>'
        case other:
            raise ValueError(other)


def _pressable(given: Json) -> str:
    match given["type"]:
        case 2:
            return _button(given)
        case 3:
            return f'<div class="field menu">{marked(given["placeholder"])} <span>▾</span></div>'
        case other:
            raise ValueError(other)


def _button(given: Json) -> str:
    thumb = _THUMBS[given["emoji"]["name"]] if "emoji" in given else ""
    return f'<span class="button look{given["style"]}">{thumb}{marked(given.get("label") or "")}</span>'


def _field(given: Json) -> str:
    match given:
        case {"type": 10, "content": content}:
            return f'<div class="hint">{_markdown(content, {})}</div>'
        case {"type": 18, "component": inner}:
            needed = " <s>*</s>" if inner.get("required", inner["type"] != _CHECKBOX) else ""
            below = given.get("description")
            hint = f'<div class="hint">{marked(below)}</div>' if below else ""
            return f'<div class="label">{marked(given["label"])}{needed}</div>{hint}{_input(inner)}'
        case _:
            raise ValueError(given["type"])


def _input(given: Json) -> str:
    match given["type"]:
        case 4:
            tall = " tall" if given.get("style") == 2 else ""
            return f'<div class="field{tall}">{marked(given.get("value") or "")}</div>'
        case 3:
            chosen = [each["label"] for each in given["options"] if each.get("default")]
            return f'<div class="field">{marked(", ".join(chosen) or "Make a selection")} ▾</div>'
        case 21:
            return "".join(
                f"<div>{'◉' if each.get('default') else '○'} {marked(each['label'])}</div>" for each in given["options"]
            )
        case 23:
            return f"<div>{'☑' if given.get('default') else '☐'}</div>"
        case other:
            raise ValueError(other)


_CHECKBOX = 23


# Markdown


def _markdown(text: str, names: Names) -> str:
    pieces: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text):
        pieces += [_lines(text[at : fence.start()].strip("\n"), names), f"<pre>{marked(fence[1])}</pre>"]
        at = fence.end()
    pieces.append(_lines(text[at:].strip("\n"), names))
    return "".join(filter(None, pieces))


def _lines(text: str, names: Names) -> str:
    return "".join(_line(line, names) for line in text.split("\n")) if text else ""


def _line(line: str, names: Names) -> str:
    mark, _, rest = line.partition(" ")
    if mark == "-#":
        return f'<div class="text small">{_inline(rest, names)}</div>'
    if mark in _HEADINGS:
        return f"<h{len(mark)}>{_inline(rest, names)}</h{len(mark)}>"
    if mark == ">":
        return f'<div class="text quote">{_inline(rest, names)}</div>'
    if match := _ITEM.fullmatch(line):
        bullet = "•" if match[2] == "-" else match[2]
        margin = 11 * len(match[1])
        inside = f'<span>{bullet}</span><span class="text">{_inline(match[3], names)}</span>'
        return f'<div class="item" style="margin-left:{margin}px">{inside}</div>'
    return f'<div class="text">{_inline(line, names) or "&nbsp;"}</div>'


def _inline(text: str, names: Names) -> str:
    made: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        made += [marked(text[at : found.start()]), _drawn(found, names)]
        at = found.end()
    return "".join([*made, marked(text[at:])])


def _drawn(found: re.Match[str], names: Names) -> str:
    kind = next(name for name in _PIECES if found[name] is not None)
    return _PIECES[kind](found[kind], found, names)


_HEADINGS: Sequence[str] = ("#", "##", "###")
_PIECES: Mapping[str, Callable[[str, re.Match[str], Names], str]] = {
    "plain": lambda text, _found, _names: marked(text),
    "code": lambda text, _found, _names: f"<code>{marked(text)}</code>",
    "bold": lambda text, _found, names: f"<b>{_inline(text, names)}</b>",
    "struck": lambda text, _found, names: f"<s>{_inline(text, names)}</s>",
    "italic": lambda text, _found, names: f"<i>{_inline(text, names)}</i>",
    "label": lambda text, _found, names: f"<a>{_inline(text, names)}</a>",
    "person": lambda text, _found, names: f'<span class="person">@{escape(names[text])}</span>',
    "moment": lambda text, _found, _names: f'<span class="moment">{_MOMENTS[text]}</span>',
    "link": lambda text, _found, _names: f"<a>{marked(text)}</a>",
    "bare": lambda text, _found, _names: f"<a>{marked(text)}</a>",
}
