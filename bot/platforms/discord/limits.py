"""Discord's limits (docs.discord.com and discord.py 2.7), in characters or items unless noted."""

from __future__ import annotations

CONTENT = 2_000
DISPLAYED = 4_000
"""All the text of a message that is laid out."""
DISPLAYED_BYTES = 9_600
"""The same in UTF-8. Discord answers with status 500 beyond some 10,170 bytes with twelve more for each text, which is
not documented (discord-api-docs#8554), and would do so however often the message is sent.
"""
COMPONENTS = 40
"""In one message that is laid out, those within others counted too."""
BUTTONS_A_ROW = 5
ROWS = 5
"""Rows of buttons below a plain message."""
BUTTON_LABEL = 80
LINK = 512
"""The address that a button leads to."""
CUSTOM_ID = 100
OPTIONS, OPTION_TEXT, PLACEHOLDER = 25, 100, 150
NONCE = 25
FILE = 10 * 1024 * 1024
"""Bytes of one file in a guild without boosts."""


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, the highest count that Discord may use."""
    return len(text) + sum(each > "\uffff" for each in text)


def display_length(text: str) -> int:
    """Return the share of DISPLAYED that a text takes in a layout at most: its length, or its share of DISPLAYED_BYTES
    scaled to DISPLAYED, the higher one.
    """
    return max(utf16_length(text), -(-len(text.encode("utf-8", "replace")) * DISPLAYED // DISPLAYED_BYTES))
