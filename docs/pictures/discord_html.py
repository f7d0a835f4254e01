"""Discord's messages as HTML, similar enough to its clients in their dark theme to judge their readability.

For `discord_pictures.py`. Only the Markdown and components that this program uses are supported; others raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

Json = dict[str, Any]

STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 0 16px 16px; width: 700px; background: #323339; color: #dfe0e2;
  font: 16px/1.375 "Noto Sans", "Noto Sans JP", Twemoji, sans-serif }
.place { color: #fbfbfb; font-weight: 600; border-bottom: 1px solid #ffffff14; padding: 12px 0; margin-bottom: 16px }
.place i { color: #94959c; font-style: normal; font-size: 20px; margin-right: 8px; vertical-align: -1px }
.event { display: flex; align-items: center; gap: 12px; color: #94959c; font-size: 12px; font-weight: 600;
  margin: 20px 0 0 } .event:before, .event:after { content: ""; flex: 1; border-top: 1px solid #ffffff1f }
.message { display: flex; gap: 16px; padding: 2px 0; margin-top: 16px }
.private { background: #5865f21a; box-shadow: inset 2px 0 0 #5865f2; margin: 16px -16px 0; padding: 2px 16px 6px }
.avatar { flex: 0 0 40px; height: 40px; border-radius: 50%; background: #23a559; color: #fff; font-weight: 600;
  text-align: center; line-height: 40px } .bot { background: #1f2937 }
.who { line-height: 22px } .who b { color: #fbfbfb; font-weight: 500; margin-right: 4px }
.app { background: #5865f2; border-radius: 4px; font-size: 12px; font-weight: 500; line-height: 15px; padding: 0 5px;
  color: #fff; display: inline-block; vertical-align: 1px }
.time { color: #94959c; font-size: 12px; margin-left: 8px } .only { color: #94959c; font-size: 12px; margin-top: 4px }
.only a { color: #7bb0f5 } .content { flex: 1; min-width: 0; max-width: 600px }
.text { white-space: pre-wrap; overflow-wrap: anywhere } .small { color: #aaaab1; font-size: 13px; line-height: 18px }
h1, h2, h3 { color: #fbfbfb; font-weight: 700; line-height: 1.375; margin: 8px 0 4px }
h1 { font-size: 24px } h2 { font-size: 20px } h3 { font-size: 16px } .box h3:first-child { margin-top: 0 }
code { background: #ffffff14; border-radius: 4px; padding: 0 3px;
  font: 13.6px/1.3 "Roboto Mono", "DejaVu Sans Mono", monospace }
pre { background: #2b2c31; border: 1px solid #ffffff1f; border-radius: 4px; padding: 7px; margin: 6px 0 0;
  white-space: pre-wrap; overflow-wrap: anywhere;
  font: 14px/18px "Roboto Mono", "DejaVu Sans Mono", "Noto Sans JP", Twemoji, monospace }
.quote { border-left: 4px solid #5d5e66; border-radius: 4px; padding: 0 8px 0 12px }
.item { display: flex } .item > span:first-child { flex: 0 0 24px; text-align: right; padding-right: 9px }
a { color: #7bb0f5; text-decoration: none }
.person { color: #c9cdfb; background: #5865f23d; border-radius: 3px; padding: 0 2px; font-weight: 500 }
.moment { background: #ffffff14; border-radius: 3px; padding: 0 2px }
.box { background: #393a41; border: 1px solid #ffffff1f; border-left: 4px solid; border-radius: 8px; max-width: 600px;
  padding: 16px; margin: 4px 0 } .box > * + * { margin-top: 8px }
hr { border: 0; border-top: 1px solid #ffffff1f; margin: 12px 0 } .row { margin-top: 4px }
.button { display: inline-block; border-radius: 8px; height: 32px; line-height: 32px; padding: 0 16px;
  margin: 4px 8px 0 0; font-size: 14px; font-weight: 500; color: #fff }
.look1 { background: #5865f2 } .look2 { background: #97979f33 } .look3 { background: #00863a }
.look4 { background: #d22d39 } .look5 { background: #97979f33 } .look5:after { content: " ↗" }
.file { display: inline-block; background: #393a41; border: 1px solid #ffffff1f; border-radius: 8px; margin: 6px 0;
  padding: 16px; min-width: 300px; color: #7bb0f5 } .file span { color: #94959c; font-size: 12px; display: block }
.modal { background: #393a41; border: 1px solid #ffffff1f; border-radius: 12px; max-width: 478px; padding: 0 24px;
  margin: 16px 0; box-shadow: 0 12px 36px #0000003d }
.title { font-size: 20px; font-weight: 700; color: #fbfbfb; padding: 24px 0 8px }
.label { color: #fbfbfb; font-weight: 500; margin-top: 20px } .label s { color: #f57976; text-decoration: none }
.hint { color: #aaaab1; font-size: 14px } .field { background: #00000014; border: 1px solid #97979f33;
  border-radius: 8px; padding: 9px 12px; min-height: 44px; margin: 8px 0 }
.tall { min-height: 98px } .foot { text-align: right; padding: 24px 0 }
.menu { color: #94959c; max-width: 400px } .menu span { float: right }
.foot .button { margin: 0 0 0 8px; height: 38px; line-height: 38px; min-width: 96px; text-align: center }
.gap { height: 8px }
"""
_FENCE = re.compile(r"```(?:[A-Za-z0-9_+.#-]+(?=\n))?\n?(.*?)\n?```", re.DOTALL)
_INLINE = re.compile(
    r"""
      \\(?P<plain>[^\w\s])
    | (?P<ticks>`+)(?P<code>.+?)(?P=ticks)
    | \*\*(?P<bold>.+?)\*\*(?!\*)
    | ~~(?P<struck>.+?)~~
    | \*(?P<italic>[^*\s](?:.*?[^*\s])?)\*
    | \[(?P<label>(?:\\.|[^\]\\])+)\]\(<(?P<target>[^>]+)>\)
    | <@(?P<person>\d+)> | <\#(?P<channel>\d+)> | <t:\d+:(?P<moment>[tR])> | <(?P<link>https?://[^>]+)> | (?P<bare>https?://[^\s<]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"( *)(-|\d+\.) (.*)")
_MOMENTS = {"R": "in 30 minutes", "t": "14:06"}

Names = Mapping[str, str]
"""Names of users and channels, by their ids."""


def place(name: str) -> str:
    """Return the line above a thread."""
    return f'<div class="place"><i>#</i>{escape(name)}</div>'


def event(text: str) -> str:
    """Return a line between two states of a thread."""
    return f'<div class="event">{escape(text)}</div>'


def said(name: str, text: str, names: Names) -> str:
    """Return a message of a user."""
    return _message(name, "", "", _markdown(text, names), private=False)


def answered(message: Json, names: Names) -> str:
    """Return a message of the bot from Discord's description of it."""
    body = _markdown(message["content"], names) if message["content"] else ""
    files = "".join(map(_file, message.get("attachments", ())))
    private = bool(message["flags"] & 1 << 6)
    body += files + "".join(_component(each, names) for each in message["components"])
    return _message("Countersign", " bot", '<span class="app">APP</span>', body, private=private)


def modal(drawn: Json) -> str:
    """Return a form from the modal that was opened."""
    inside = "".join(map(_field, drawn["components"]))
    foot = '<div class="foot"><span class="button look2">Cancel</span><span class="button look1">Submit</span></div>'
    return f'<div class="modal"><div class="title">{escape(drawn["title"])}</div>{inside}{foot}</div>'


def page(*drawn: str) -> str:
    """Return a whole document."""
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
    return f'<div class="file">{escape(attached["filename"])}<span>{size}</span></div>'


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
            return f'<div class="field menu">{escape(given["placeholder"])} <span>▾</span></div>'
        case other:
            raise ValueError(other)


def _button(given: Json) -> str:
    label = escape(given.get("emoji", {}).get("name", "") + (given.get("label") or ""))
    return f'<span class="button look{given["style"]}">{label}</span>'


def _field(given: Json) -> str:
    match given:
        case {"type": 10, "content": content}:
            return f'<div class="hint">{_markdown(content, {})}</div>'
        case {"type": 18, "component": inner}:
            needed = " <s>*</s>" if inner.get("required", inner["type"] != _CHECKBOX) else ""
            below = given.get("description")
            hint = f'<div class="hint">{escape(below)}</div>' if below else ""
            return f'<div class="label">{escape(given["label"])}{needed}</div>{hint}{_input(inner)}'
        case _:
            raise ValueError(given["type"])


def _input(given: Json) -> str:
    match given["type"]:
        case 4:
            tall = " tall" if given.get("style") == 2 else ""
            return f'<div class="field{tall}">{escape(given.get("value") or "")}</div>'
        case 3:
            chosen = [each["label"] for each in given["options"] if each.get("default")]
            return f'<div class="field">{escape(", ".join(chosen) or "Make a selection")} ▾</div>'
        case 21:
            return "".join(
                f"<div>{'◉' if each.get('default') else '○'} {escape(each['label'])}</div>" for each in given["options"]
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
        pieces += [_lines(text[at : fence.start()].strip("\n"), names), f"<pre>{escape(fence[1])}</pre>"]
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
        made += [escape(text[at : found.start()]), _drawn(found, names)]
        at = found.end()
    return "".join([*made, escape(text[at:])])


def _drawn(found: re.Match[str], names: Names) -> str:
    kind = next(name for name in _PIECES if found[name] is not None)
    return _PIECES[kind](found[kind], found, names)


_HEADINGS: Sequence[str] = ("#", "##", "###")
_PIECES: Mapping[str, Callable[[str, re.Match[str], Names], str]] = {
    "plain": lambda text, _found, _names: escape(text),
    "code": lambda text, _found, _names: f"<code>{escape(text)}</code>",
    "bold": lambda text, _found, names: f"<b>{_inline(text, names)}</b>",
    "struck": lambda text, _found, names: f"<s>{_inline(text, names)}</s>",
    "italic": lambda text, _found, names: f"<i>{_inline(text, names)}</i>",
    "label": lambda text, _found, names: f"<a>{_inline(text, names)}</a>",
    "channel": lambda text, _found, names: f'<span class="person"># {escape(names[text])}</span>',
    "person": lambda text, _found, names: f'<span class="person">@{escape(names[text])}</span>',
    "moment": lambda text, _found, _names: f'<span class="moment">{_MOMENTS[text]}</span>',
    "link": lambda text, _found, _names: f"<a>{escape(text)}</a>",
    "bare": lambda text, _found, _names: f"<a>{escape(text)}</a>",
}
