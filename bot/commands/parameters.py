"""Parameters that more than one verb takes."""

from __future__ import annotations

from bot.commands.phrases import POLICY_CHOICES
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import Known, Parameter, Shape

SERVER = Parameter("server", "the server's name, id or title", required=True, completes=Known.SERVERS, metavar="NAME")
A_SERVER = Parameter("server", "one server alone", completes=Known.SERVERS, metavar="NAME")
TOOL = Parameter("tool", "the server's own name for the tool", required=True, completes=Known.TOOLS)
A_TOOL = Parameter("tool", "one tool alone; without it, all that have no word of their own", completes=Known.TOOLS)
CONFIRM = Parameter("confirm", "the name once more, so that nothing goes by accident", Shape.OPTION, metavar="NAME")
VERSION = Parameter("version", "only if nobody has changed it since", Shape.OPTION, metavar="N")
PROFILE = Parameter("profile", "the profile's name", required=True, completes=Known.PROFILES, metavar="NAME")
POLICY = Parameter(
    "policy",
    "what happens when the model asks for it",
    required=True,
    choices=(*POLICY_CHOICES, *(policy.value for policy in ApprovalPolicy)),
    metavar="|".join(POLICY_CHOICES),
)
