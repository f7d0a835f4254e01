"""Whether somebody's signature on a call would count: asked by whatever shows people what waits for them.

It is a look and no right: the engine asks again when somebody signs, and knows more then.
"""

from __future__ import annotations

from bot.domain.approvals import Signing, Verdict
from bot.domain.conversations import Member
from bot.engine.rules import RuleBook
from bot.engine.signing import signing
from bot.stores import AwaitedCall


def signs(rules: RuleBook, member: Member, call: AwaitedCall) -> bool:
    """Whether this person may sign this call, on the terms it was asked on."""
    signatories = rules.rules(call.conversation).signatories
    found = signing(signatories, call.terms, member, Verdict.APPROVE, asker=call.asked_by, editors=call.editors)
    return isinstance(found, Signing)
