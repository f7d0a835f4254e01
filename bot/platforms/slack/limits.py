"""Slack's limits (docs.slack.dev and the models of slack_sdk 3.47), in characters or items unless noted."""

from __future__ import annotations

MESSAGE_WEIGHT = 9_000
"""Text of one message, in `markdown_split.weight`. Slack documents no limit for blocks; streamed messages were rejected
from about 10,600 bytes on.
"""
UPDATED_TEXT = 4_000
"""`text` of a message that is edited, in bytes of UTF-8."""

BUTTON_TEXT = 75
BUTTON_VALUE = 2_000
BUTTON_LINK = 3_000
BUTTONS_A_BLOCK = 25
PLAIN_TEXT = 3_000
"""`section` and `context` text."""
HEADER = 150
CONFIRM_TITLE, CONFIRM_TEXT, CONFIRM_BUTTON = 100, 300, 30

TABLE_ROWS, TABLE_COLUMNS, TABLE_CHARACTERS = 100, 20, 10_000
TABLES_A_MESSAGE = 1
LIST_INDENT = 6

VIEW_TITLE = 24
PRIVATE_METADATA = 3_000
INPUT_LABEL, INPUT_HINT = 2_000, 2_000
INPUT_LENGTH = 3_000
OPTIONS = 100
MENU_OPTIONS = 5
OPTION_VALUE = 150
OPTION_TEXT = 75

TASK_TEXT = 256
