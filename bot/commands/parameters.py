"""Parameters of several verbs."""

from __future__ import annotations

from bot.commands.text_format import POLICY_CHOICES
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import CompletionSource, Parameter, ParameterKind

SERVER = Parameter(
    "server", "the server's name, id or title", required=True, completes=CompletionSource.SERVERS, metavar="NAME"
)
A_SERVER = Parameter("server", "one server alone", completes=CompletionSource.SERVERS, metavar="NAME")
TOOL = Parameter("tool", "the server's own name for the tool", required=True, completes=CompletionSource.TOOLS)
A_TOOL = Parameter(
    "tool", "one tool alone; without it, all that have no word of their own", completes=CompletionSource.TOOLS
)
CONFIRM = Parameter(
    "confirm", "the name once more, so that nothing goes by accident", ParameterKind.OPTION, metavar="NAME"
)
VERSION = Parameter("version", "only if it is unchanged since this version", ParameterKind.OPTION, metavar="N")
PROFILE = Parameter("profile", "the profile's name", required=True, completes=CompletionSource.PROFILES, metavar="NAME")
POLICY = Parameter(
    "policy",
    "what happens when the model asks for it",
    required=True,
    choices=(*POLICY_CHOICES, *(policy.value for policy in ApprovalPolicy)),
    metavar="|".join(POLICY_CHOICES),
)
