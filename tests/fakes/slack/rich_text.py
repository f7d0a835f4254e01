"""Rich text: sections, lists, quotes and preformatted text, with their allowed elements."""

from __future__ import annotations

from tests.fakes.slack.shapes import Shape, anything, by_type, flag, maybe, one_of, record, rows, string, url, whole

STYLE = record({name: maybe(flag) for name in ("bold", "italic", "strike", "code", "underline")})
_S = {"style": maybe(STYLE)}
PIECES: dict[str, Shape] = {
    "text": record({"text": string(40_000), **_S}),
    "link": record({"url": url(), "text": maybe(string(40_000, 0)), "unsafe": maybe(flag), **_S}),
    "emoji": record({"name": string(100), "unicode": maybe(string(100)), "skin_tone": maybe(whole), **_S}),
    "user": record({"user_id": string(30), **_S}),
    "channel": record({"channel_id": string(30), **_S}),
    "usergroup": record({"usergroup_id": string(30), **_S}),
    "broadcast": record({"range": one_of("here", "channel", "everyone"), **_S}),
    "date": record(
        {"timestamp": whole, "format": string(200), "url": maybe(url()), "fallback": maybe(string(200)), **_S}
    ),
    "color": record({"value": string(20), **_S}),
}
PIECE = by_type(PIECES, "rich text element")
SECTION = record({"elements": rows(PIECE, 1000, 0)})
BORDERED = record({"elements": rows(PIECE, 1000, 0), "border": maybe(whole), "language": maybe(anything)})
PARTS: dict[str, Shape] = {
    "rich_text_section": SECTION,
    "rich_text_preformatted": BORDERED,
    "rich_text_quote": BORDERED,
    "rich_text_list": record(
        {
            "style": one_of("bullet", "ordered"),
            "elements": rows(by_type({"rich_text_section": SECTION}, "rich text element"), 1000),
            "indent": maybe(whole),
            "offset": maybe(whole),
            "border": maybe(whole),
        }
    ),
}
RICH_TEXT = record({"elements": rows(by_type(PARTS, "rich text element"), 1000), "block_id": maybe(string(255))})
