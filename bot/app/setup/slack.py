"""The steps of `countersign setup slack`, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from bot.app.setup.options import SetupOptions
from bot.app.setup.slack_app import AppStep, ConnectionStep, TokenStep
from bot.app.setup.slack_channel import AdminsStep, ChannelStep, MessageStep
from bot.app.setup.slack_context import SlackSetup
from bot.app.setup.steps import Step
from bot.app.setup.values import Progress, SetupValues


def steps(values: SetupValues, progress: Progress, options: SetupOptions) -> Sequence[Step]:
    """Return the steps."""
    setup = SlackSetup(values, progress, options)
    kinds = (AppStep, TokenStep, ConnectionStep, AdminsStep, ChannelStep, MessageStep)
    return [kind(setup) for kind in kinds]
