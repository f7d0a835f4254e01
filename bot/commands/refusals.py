"""A command that is turned down, with the reason."""

from __future__ import annotations


class Refusal(Exception):
    """What was asked is not done. The text is Markdown of our own: cause, fix, and nothing that was typed."""
