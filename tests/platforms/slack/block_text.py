"""Blocks as lines of text, similar to the display in Slack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def outline(blocks: Sequence[dict[str, Any]]) -> str:
    """Return at least one line for each block."""
    return "\n".join(line for block in blocks for line in _lines(block))


_BARE = {"divider": "---", "context_actions": "[+] [-]"}


def _lines(block: dict[str, Any]) -> Iterator[str]:
    match block["type"]:
        case "rich_text":
            yield from _rich(block)
        case "table":
            for row in block["rows"]:
                yield "| " + " | ".join("".join(_pieces(cell["elements"][0])) for cell in row) + " |"
        case "context":
            yield from (f"  . {line}" for each in block["elements"] for line in each["text"].split("\n"))
        case "header":
            yield f"# {block['text']['text']}"
        case "section":
            yield block["text"]["text"]
        case "actions":
            yield " ".join(_pressable(each) for each in block["elements"])
        case "input":
            yield _input(block)
        case other:
            yield _BARE[other]


def _rich(block: dict[str, Any]) -> Iterator[str]:
    for part in block["elements"]:
        match part["type"]:
            case "rich_text_list":
                mark = "1." if part["style"] == "ordered" else "-"
                for item in part["elements"]:
                    yield "  " * part["indent"] + f"{mark} " + "".join(_pieces(item))
            case "rich_text_preformatted":
                yield from (f"    {line}" for line in "".join(_pieces(part)).split("\n"))
            case "rich_text_quote":
                yield from (f"> {line}" for line in "".join(_pieces(part)).split("\n"))
            case _:
                yield from "".join(_pieces(part)).split("\n")


def _pieces(part: dict[str, Any]) -> Iterator[str]:
    for piece in part["elements"]:
        match piece["type"]:
            case "text" | "link":
                yield _styled_text(piece["text"], piece.get("style", {}))
            case "user":
                yield f"@{piece['user_id']}"
            case "channel":
                yield f"#{piece['channel_id']}"
            case "date":
                yield f"<{piece['fallback']}>"


def _styled_text(text: str, style: dict[str, bool]) -> str:
    for name, mark in (("code", "`"), ("strike", "~"), ("italic", "_"), ("bold", "*")):
        text = f"{mark}{text}{mark}" if style.get(name) else text
    return text


def _pressable(element: dict[str, Any]) -> str:
    if element["type"] == "overflow":
        return "[⋯]"
    style = f"({element['style']})" if "style" in element else ""
    asks = "?" if "confirm" in element else ""
    return f"[{element['text']['text']}]{style}{asks}"


def _input(block: dict[str, Any]) -> str:
    element = block["element"]
    held = element.get("initial_value") or element.get("initial_option", {}).get("value", "")
    star = "" if block["optional"] else "*"
    return f"{block['label']['text']}{star} <{element['type']}> {held}".rstrip()
