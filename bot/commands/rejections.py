"""Rejections of commands."""

from __future__ import annotations


class CommandRejected(Exception):
    """A rejected command. The text is Markdown of this project with cause and fix, and repeats no input."""


class NotFoundRejection(CommandRejected):
    """The named record is missing, or not visible to the user."""


class ForbiddenRejection(CommandRejected):
    """The record is visible, but only others may change it."""
