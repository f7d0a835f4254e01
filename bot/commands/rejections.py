"""A command that is turned down, with the reason."""

from __future__ import annotations


class CommandRejected(Exception):
    """What was asked is not done. The text is Markdown of our own: cause, fix, and nothing that was typed."""


class NotFoundRejection(CommandRejected):
    """What was named does not exist, or not where whoever asks stands."""


class ForbiddenRejection(CommandRejected):
    """It is there, and somebody else's to change."""
