"""Self-approval: the author may approve calls that are not destructive and name no other users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bot.domain.approvals import (
    MEMBERS,
    Approval,
    ApprovalNotice,
    ApprovalPolicy,
    ApprovalRequirements,
    ApproverEvidence,
    ArgumentsScope,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    HoursScope,
    NotAllowed,
    PermanentScope,
    SelfApproval,
    ThreadScope,
)
from bot.domain.audit import AuditQuery
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.flows import Flow, Sends, Words
from bot.domain.grants import GrantRequest
from bot.domain.messages import ToolCall
from bot.domain.policies import Rule, TaintMode
from bot.domain.profiles import DEFAULT, Binding, Profile
from bot.domain.tools import Annotations, CallOutcomeUnknown, Tool, ToolKind, ToolOutcome
from bot.domain.turns import Notice, NoticeTarget, StepStatus, ToolStep
from bot.engine.engine import Engine
from bot.engine.policy.approvers import SELF_APPROVED, Approvers, check_approver
from bot.engine.policy.evaluation import nothing_reviewed
from bot.engine.policy.information_flow import Taint, TaintSource
from bot.engine.policy.rules import Policies, RuleBook, Rules, can_approve, is_expected_approver
from bot.errors import DeliveryFailed
from bot.ports import CallContext, PendingApproval
from bot.ports.platform import RevisionAccepted
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.engine.test_approver_check import until_posted
from tests.fakes.parts import (
    ANA,
    BEN,
    HALL,
    FakeToolbox,
    RecordingSurface,
    ask_for,
    call,
    message,
    running,
    say,
    tool,
    until,
)

ALLOW, ASK, AUTO = ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER, ApprovalPolicy.AUTO
ADD = tool("notes__add", server_id="n1", destructive=False)
WIPE = tool("notes__wipe", server_id="n1", destructive=True)
EVE = Author("test", "eve", "Eve")
APPROVERS = Approvers(admins=frozenset({"test:admin"}), approvers=frozenset({"test:ben"}))
THREAD = GrantRequest(ThreadScope())


def is_pinned(_tool: Tool) -> bool:
    return True


def place(**changes: Any) -> Rules:
    """Return rules for HALL that ask for every call. All definitions are pinned."""
    return replace(Rules(approvers=APPROVERS, conversation=HALL, reviewed=is_pinned), **changes)


def judge_self_approval(
    called: Tool = ADD, rules: Rules | None = None, author: Author = ANA, member: Member | None = None, **arguments: Any
) -> SelfApproval:
    result = (rules or place()).judge(called, arguments, author, member)
    return result.requirements.self_approval


# ------------------------------------------------------------------ calls

UNPINNED = place(reviewed=nothing_reviewed)


def asking(**requirements: Any) -> Rules:
    return place(
        file=Policies(rules=(Rule(ASK, requirements=ApprovalRequirements(**requirements), id="policy.toml:1"),))
    )


@pytest.mark.parametrize(
    ("called", "rules", "result"),
    [
        (ADD, place(), SelfApproval.ALLOWED),
        # ------------------------------------------------ the hints of MCP, if the server is trusted
        (tool("notes__read", read_only=True), place(), SelfApproval.ALLOWED),
        (tool("notes__read", read_only=True, destructive=True), place(), SelfApproval.ALLOWED),
        (WIPE, place(), SelfApproval.DESTRUCTIVE),
        (tool("notes__edit"), place(), SelfApproval.DESTRUCTIVE),
        (tool("notes__edit", read_only=False), place(), SelfApproval.DESTRUCTIVE),
        (replace(ADD, trusted=False), place(), SelfApproval.UNTRUSTED),
        (tool("notes__read", read_only=True, trusted=False), place(), SelfApproval.UNTRUSTED),
        (replace(WIPE, trusted=False), place(), SelfApproval.UNTRUSTED),
        (ADD, UNPINNED, SelfApproval.UNREVIEWED),
        # ------------------------------------------------ resources and prompts are only read, as for AUTO
        (
            Tool("r", "docs", "r", kind=ToolKind.READ_RESOURCE),
            place(reviewed=lambda _tool: False),
            SelfApproval.ALLOWED,
        ),
        (Tool("p", "docs", "p", kind=ToolKind.GET_PROMPT), place(), SelfApproval.ALLOWED),
        # ------------------------------------------------ rules, profiles and the file take precedence
        (ADD, asking(approvers=(frozenset({"test:ben"}),)), SelfApproval.RULE),
        (ADD, asking(approvers=(frozenset({MEMBERS}),)), SelfApproval.RULE),
        (ADD, asking(four_eyes=True), SelfApproval.RULE),
        (ADD, asking(quorum=2), SelfApproval.RULE),
        (ADD, asking(deliver=frozenset({"test:w:desk"})), SelfApproval.RULE),
        (ADD, asking(expires=600.0, remind=True), SelfApproval.ALLOWED),
        (WIPE, asking(quorum=2), SelfApproval.RULE),
        (ADD, place(file=Policies(self_approval=False)), SelfApproval.SETTING),
        (ADD, place(profile=replace(DEFAULT, approvers=frozenset({"test:zoe"}))), SelfApproval.PROFILE),
        # ------------------------------------------------ the approvers do not depend on the policy
        (ADD, place(file=Policies(default=ALLOW)), SelfApproval.ALLOWED),
        (ADD, place(file=Policies(default=AUTO)), SelfApproval.ALLOWED),
        (WIPE, place(file=Policies(default=ALLOW)), SelfApproval.DESTRUCTIVE),
    ],
)
def test_which_calls_their_asker_may_approve(called: Tool, rules: Rules, result: SelfApproval) -> None:
    assert judge_self_approval(called, rules) is result


@pytest.mark.parametrize(
    ("author", "member", "result"),
    [
        (ANA, None, SelfApproval.ALLOWED),
        (ANA, Member(ANA), SelfApproval.ALLOWED),
        (ANA, Member(ANA, guest=True), SelfApproval.OUTSIDER),
        (ANA, Member(ANA, external=True), SelfApproval.OUTSIDER),
        (Author("api", "ci", "ci"), None, SelfApproval.ALLOWED),
    ],
)
def test_ordinary_calls_may_be_approved_by_their_asker(
    author: Author, member: Member | None, result: SelfApproval
) -> None:
    assert judge_self_approval(author=author, member=member) is result


def test_a_call_without_an_asker_or_arguments_is_not_classified() -> None:
    assert place().judge(ADD, {}).requirements.self_approval is SelfApproval.UNKNOWN
    assert place().judge(ADD, None, ANA).requirements.self_approval is SelfApproval.UNKNOWN


PRIYA = Author("slack", "U024BE7LH", "ben")
OPS = ConversationKey("slack", "T1", "C061EG9SL", "1.0")
DMITRI = Author("discord", "345678901234567890", "Dmitri")
GUILD = ConversationKey("discord", "789012345678901234", "567890123456789012", "678901234567890123")


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        ({"text": "milk"}, False),
        ({"text": "Ben and Priya met at 5 pm"}, False),
        ({"text": "Ben and Priya met in #ops at 5 pm"}, True),
        ({"n": 5, "on": True, "off": None, "list": [], "table": {}}, False),
        # ------------------------------------------------ users in arguments
        ({"text": "thanks <@U0BOBBOB1>"}, True),
        ({"text": "thanks <@U0BOBBOB1|bob>"}, True),
        ({"text": "thanks <@U024BE7LH>"}, False),
        ({"text": "thanks <@U024BE7LH|U0BOBBOB1>"}, False),
        ({"user": "U0BOBBOB1"}, True),
        ({"user": "slack:U0BOBBOB1"}, True),
        ({"user": "W0BOBBOB1"}, True),
        ({"user": "U024BE7LH"}, False),
        ({"user": "slack:U024BE7LH"}, False),
        ({"users": ["U024BE7LH", "U0BOBBOB1"]}, True),
        ({"to": {"U0BOBBOB1": "admin"}}, True),
        ({"title": "XU0BOBBOB1", "word": "UNITEDSTATES", "line": "U0BOBBOB1-a"}, False),
        ({"to": "bob@example.com"}, True),
        ({"to": "bob@corp"}, True),
        ({"url": "mailto:bob%40example.com"}, True),
        ({"url": "https://x.example/?user=%3CU0BOBBOB1%3E"}, True),
        ({"text": "100 % of it"}, False),
        ({"text": "ask @bob"}, True),
        ({"text": "@ben"}, True),
        ({"text": "<!here> and <!subteam^S0OPSOPS1>"}, True),
        ({"text": "@everyone"}, True),
        ({"group": "S0OPSOPS1"}, True),
        # ------------------------------------------------ conversations in arguments
        ({"channel": "C061EG9SL"}, False),
        ({"channel": "<#C061EG9SL|ops>"}, False),
        ({"channel": "C0OTHER99"}, True),
        ({"channel": "<#C0OTHER99>"}, True),
        ({"channel": "D0OTHER99"}, True),
        ({"channel": "G0OTHER99"}, True),
    ],
)
def test_arguments_that_name_other_people_or_places_need_an_approver(arguments: dict[str, Any], others: bool) -> None:
    here = place(conversation=OPS)
    assert judge_self_approval(rules=here, author=PRIYA, **arguments) is (
        SelfApproval.OTHERS if others else SelfApproval.ALLOWED
    )


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        ({"user": "345678901234567890"}, False),
        ({"user": 345678901234567890}, False),
        ({"user": "<@!345678901234567890>"}, False),
        ({"user": 345678901234567891}, True),
        ({"text": "<@345678901234567891>"}, True),
        ({"text": "<@&345678901234567891>"}, True),
        ({"channel": "567890123456789012"}, False),
        ({"channel": "<#567890123456789013>"}, True),
        ({"thread": "678901234567890123"}, False),
        ({"thread": "<#678901234567890123>"}, False),
        ({"guild": "789012345678901234"}, True),
        ({"number": "1234567890123456", "value": "123456789012345678901"}, False),
    ],
)
def test_ids_of_discord_name_people_and_places(arguments: dict[str, Any], others: bool) -> None:
    here = place(conversation=GUILD)
    assert judge_self_approval(rules=here, author=DMITRI, **arguments) is (
        SelfApproval.OTHERS if others else SelfApproval.ALLOWED
    )


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        ({"to": "Bob"}, True),
        ({"to": "U024BE7LH"}, False),
        ({"to": "slack:U024BE7LH"}, False),
        ({"to": [" U024BE7LH ", "<#C061EG9SL>", "#C061EG9SL"]}, False),
        ({"to": "<@U024BE7LH>"}, False),
        ({"to": ""}, True),
        ({}, True),
    ],
)
def test_an_argument_that_the_operator_lists_as_a_recipient_names_a_person(
    arguments: dict[str, Any], others: bool
) -> None:
    sending = replace(ADD, flow=Flow(recipients=("to",)))
    result = judge_self_approval(sending, place(conversation=OPS), PRIYA, **arguments)
    assert result is (SelfApproval.OTHERS if others else SelfApproval.ALLOWED)


@pytest.mark.parametrize(
    ("default", "flow", "others"),
    [("everyone", Flow(recipients=("to",)), True), ("@everyone", Flow(), True), ("everyone", Flow(), True)],
)
def test_a_default_names_others_where_the_argument_is_left_out(default: str, flow: Flow, others: bool) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "default": default}}}
    sending = replace(ADD, flow=flow, input_schema=schema)
    here = place(conversation=OPS)
    assert judge_self_approval(sending, here, PRIYA) is (SelfApproval.OTHERS if others else SelfApproval.ALLOWED)
    assert judge_self_approval(sending, here, PRIYA, to="U024BE7LH") is SelfApproval.ALLOWED


def test_a_filled_in_address_template_names_other_people() -> None:
    filled = place(fill_address=lambda _tool, arguments: {"uri": f"mail://{arguments['box']}@example.com"})
    assert judge_self_approval(rules=filled, box="ben") is SelfApproval.OTHERS


def test_a_call_that_asks_because_of_others_words_needs_an_approver() -> None:
    sending = replace(ADD, flow=Flow(Words.OWN, Sends.TEAM))
    taint = Taint((TaintSource("web", Words.STRANGERS),))
    for default in (ASK, ALLOW):
        result = place(file=Policies(default=default)).judge(sending, {}, ANA)
        assert taint.apply_policy(sending, {}, result).requirements.self_approval is SelfApproval.TAINT
    unknown = replace(sending, trusted=False, annotations=Annotations())
    for default, reason in ((ASK, SelfApproval.UNTRUSTED), (ALLOW, SelfApproval.TAINT)):
        judged_by_rules = place(file=Policies(default=default)).judge(unknown, {}, ANA)
        tainted = taint.apply_policy(unknown, {}, judged_by_rules)
        assert tainted.requirements.self_approval is reason
        assert (tainted.stored.sources, tainted.stored.is_allowed) == ("web", default is ALLOW)
    closed = replace(ADD, flow=Flow(Words.SHARED, Sends.CLOSED))
    result = place().judge(closed, {}, ANA)
    assert taint.apply_policy(closed, {}, result).requirements.self_approval is SelfApproval.ALLOWED


def test_the_stored_and_the_present_rule_both_have_to_allow_it() -> None:
    allowed, unknown = ApprovalRequirements(self_approval=SelfApproval.ALLOWED), ApprovalRequirements()
    assert allowed.combine(allowed).asker_may_approve
    assert not allowed.combine(unknown).asker_may_approve
    assert not unknown.combine(allowed).asker_may_approve
    assert not allowed.combine(ApprovalRequirements(quorum=2, self_approval=SelfApproval.ALLOWED)).asker_may_approve
    assert allowed.restrict(SelfApproval.TAINT).restrict(SelfApproval.OTHERS).self_approval is SelfApproval.TAINT


# ------------------------------------------------------------------ approvers

OPEN = ApprovalRequirements(self_approval=SelfApproval.ALLOWED)


@pytest.mark.parametrize(
    ("terms", "who", "counts"),
    [
        (OPEN, Member(ANA), ApproverEvidence(SELF_APPROVED, self_approval=True)),
        (OPEN, Member(BEN), ApproverEvidence("test:ben")),
        (OPEN, Member(EVE), None),
        (OPEN, Member(ANA, guest=True), None),
        (OPEN, Member(ANA, external=True), None),
        (OPEN, Member(Author("other", "ana", "Ana")), None),
        (OPEN, Member(Author("api", "ana", "Ana"), frozenset({"api-role:user"})), None),
        (ApprovalRequirements(self_approval=SelfApproval.DESTRUCTIVE), Member(ANA), None),
        (ApprovalRequirements(), Member(ANA), None),
        (replace(OPEN, approvers=(frozenset({"test:zoe"}),)), Member(ANA), None),
        (replace(OPEN, quorum=2), Member(ANA), None),
        (replace(OPEN, four_eyes=True), Member(ANA), None),
    ],
)
def test_approvers_of_a_call_that_its_asker_may_approve(
    terms: ApprovalRequirements, who: Member, counts: ApproverEvidence | None
) -> None:
    found = check_approver(APPROVERS, terms, who, DecisionType.APPROVE, asker=ANA)
    assert found == counts if counts else isinstance(found, NotAllowed)
    if counts:
        assert isinstance(found, ApproverEvidence)
        assert found.self_approval is counts.self_approval


def test_an_asker_who_is_an_approver_decides_as_one() -> None:
    found = check_approver(APPROVERS, OPEN, Member(BEN), DecisionType.APPROVE, asker=BEN)
    assert found == ApproverEvidence("test:ben")
    assert isinstance(found, ApproverEvidence)
    assert not found.self_approval


def test_an_asker_who_may_not_reads_why_and_others_read_who_may() -> None:
    wiping = ApprovalRequirements(self_approval=SelfApproval.DESTRUCTIVE)
    for terms, who, reason in (
        (
            wiping,
            ANA,
            "You may not approve this. An approver must approve this, because it may delete data. It needs test:ben.",
        ),
        (wiping, EVE, "You may not approve this. It needs test:ben."),
        (OPEN, EVE, "You may not approve this. It needs the user who asked, or test:ben."),
    ):
        assert check_approver(APPROVERS, terms, Member(who), DecisionType.APPROVE, asker=ANA) == NotAllowed(reason)


@pytest.mark.parametrize(
    ("file", "profile_approvers", "shown_to"),
    [
        (Policies(), frozenset[str](), {"ana"}),
        (Policies(self_approval=False), frozenset[str](), {"ben"}),
        (Policies(), frozenset({"test:eve"}), {"eve"}),
    ],
)
def test_lists_show_a_call_to_its_asker_alone_while_they_may_approve_it(
    file: Policies, profile_approvers: frozenset[str], shown_to: set[str]
) -> None:
    book = RuleBook(file, APPROVERS, is_pinned)
    profile = Profile("p1", "desk", approvers=profile_approvers)
    book.amend([], [profile], [Binding(HALL.workspace_key, "p1")])
    pending = PendingApproval("a1", HALL, ANA, OPEN)
    assert {who.id for who in (ANA, BEN, EVE) if is_expected_approver(book, Member(who), pending)} == shown_to
    assert can_approve(book, Member(ANA), pending) is ("ana" in shown_to)
    assert can_approve(book, Member(BEN), pending) is not bool(profile_approvers)


# ------------------------------------------------------------------ in turns


@dataclass
class Hall(RecordingSurface):
    """A surface that knows guests and records notices."""

    guests: set[str] = field(default_factory=set)
    away: bool = False
    notices: list[tuple[str, str]] = field(default_factory=list)

    async def member(self, author: Author, where: ConversationKey) -> Member:
        if self.away:
            raise DeliveryFailed("The platform is away.")
        return Member(author, guest=author.id in self.guests)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        self.notices.append((audience.person, notice.text))


@pytest.fixture
def harness(harness: EngineHarness) -> EngineHarness:
    """A harness that asks for every call. Ben is an approver, and all definitions are pinned."""
    harness.rules = RuleBook(Policies(), APPROVERS, is_pinned)
    harness.surface = Hall()
    harness.toolbox.add(ADD)
    harness.toolbox.add(WIPE)
    return harness


async def ask_and_wait(harness: EngineHarness, engine: Engine, *calls: ToolCall) -> tuple[str, ToolStep]:
    """Let Ana ask for calls. Return the turn's id and the first call that awaits approval."""
    harness.model.script = [ask_for(*(calls or (call("notes__add", text="milk"),))), say("Done.")]
    receipt = await engine.receive(message(f"do it {len(harness.model.requests)}"))
    view = await harness.surface.wait_for(lambda view: view.turn.id == receipt.turn_id and bool(view.awaiting))
    return receipt.turn_id, view.awaiting[0]


def approval_of(step: ToolStep) -> Approval:
    assert step.approval is not None
    return step.approval


async def approve(
    engine: Engine, step: ToolStep, who: Author = ANA, revision: int = 1, **member: Any
) -> DecisionResult:
    decision = Decision(approval_of(step).id, revision, DecisionType.APPROVE, who)
    return await engine.approvals.decide(decision, Member(who, **member))


async def audit_entries(harness: EngineHarness, *kinds: str) -> list[tuple[str, str, Any]]:
    entries, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=kinds), 100, 0)
    return [(entry.kind, entry.actor, entry.facts.get("evidence")) for entry in reversed(entries)]


async def test_the_asker_approves_an_ordinary_call_and_the_audit_says_by_which_right(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert [approver.principal for approver in approval_of(step).possible_approvers.all] == ["test:ana"]
        assert isinstance(await approve(engine, step, EVE), NotAllowed)
        assert await approve(engine, step) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
    assert harness.toolbox.names == ["notes__add"]
    assert await audit_entries(harness, "decided") == [("decided", "test:ana", "asker: not destructive")]


async def test_the_asker_does_not_approve_a_destructive_call_and_an_approver_does(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine, call("notes__wipe"))
        assert [approver.principal for approver in approval_of(step).possible_approvers.all] == ["test:ben"]
        refused = await approve(engine, step)
        assert isinstance(refused, NotAllowed)
        assert harness.toolbox.calls == []
        assert await approve(engine, step, BEN) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
    assert harness.toolbox.names == ["notes__wipe"]
    assert await audit_entries(harness, "decided") == [("decided", "test:ben", "test:ben")]


@pytest.mark.parametrize("away", [False, True], ids=["guest", "unknown"])
async def test_guests_and_unknown_users_need_an_approver_from_the_beginning(harness: EngineHarness, away: bool) -> None:
    harness.surface = Hall(guests={"ana"}, away=away)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        reason = SelfApproval.UNKNOWN if away else SelfApproval.OUTSIDER
        assert approval_of(step).requirements.self_approval is reason
        assert [approver.principal for approver in approval_of(step).possible_approvers.all] == ["test:ben"]
        assert isinstance(await approve(engine, step), NotAllowed)
        assert await approve(engine, step, BEN) == Decided(DecisionType.APPROVE)


async def test_an_asker_who_became_a_guest_may_not_approve(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        assert isinstance(await approve(engine, step, guest=True), NotAllowed)
        assert isinstance(await approve(engine, step, external=True), NotAllowed)
        assert await approve(engine, step) == Decided(DecisionType.APPROVE)


STRICTER = {
    "the file": lambda book: book.replace_file(Policies(self_approval=False)),
    "a rule": lambda book: book.replace_file(
        Policies(rules=(Rule(ASK, requirements=ApprovalRequirements((frozenset({"test:ben"}),))),))
    ),
    "a profile": lambda book: book.amend(
        [], [Profile("p1", "desk", approvers=frozenset({"test:ben"}))], [Binding(HALL.workspace_key, "p1")]
    ),
}


@pytest.mark.parametrize("change", STRICTER)
async def test_a_stricter_rule_since_the_request_counts(harness: EngineHarness, change: str) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        assert harness.rules is not None
        STRICTER[change](harness.rules)
        assert isinstance(await approve(engine, step), NotAllowed)
        assert await approve(engine, step, BEN) == Decided(DecisionType.APPROVE)


async def test_a_weaker_rule_since_the_request_does_not_count(harness: EngineHarness) -> None:
    harness.rules = RuleBook(Policies(self_approval=False), APPROVERS, is_pinned)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        harness.rules.replace_file(Policies())
        assert isinstance(await approve(engine, step), NotAllowed)


@pytest.mark.parametrize("now", [replace(ADD, trusted=False), None], ids=["untrusted", "missing"])
async def test_a_server_that_is_no_longer_trusted_or_there_leaves_it_to_an_approver(
    harness: EngineHarness, now: Tool | None
) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        harness.toolbox.tools.pop("notes__add")
        if now is not None:
            harness.toolbox.add(now)
        assert isinstance(await approve(engine, step), NotAllowed)
        assert await approve(engine, step, BEN) == Decided(DecisionType.APPROVE)


async def test_a_call_is_decided_anew_after_an_edit_in_both_directions(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await engine.approvals.revise(approval_of(step).id, 1, {"text": "for @eve"}, Member(ANA)) == (
            RevisionAccepted(2)
        )
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)
        edited = await harness.surface.wait_for(
            lambda view: any(approval_of(pending).revision == 2 for pending in view.awaiting)
        )
        approval = approval_of(edited.awaiting[0])
        assert approval.requirements.self_approval is SelfApproval.OTHERS
        assert [approver.principal for approver in approval.possible_approvers.all] == ["test:ben"]
        await engine.approvals.revise(approval.id, 2, {"text": "for me"}, Member(BEN))
        assert await approve(engine, step, revision=3) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
    assert [arguments for _, arguments, _ in harness.toolbox.calls] == [{"text": "for me"}]


async def test_an_edit_by_a_guests_approver_gives_the_guest_no_right(harness: EngineHarness) -> None:
    harness.surface = Hall(guests={"ana"})
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "bread"}, Member(BEN))
        edited = await harness.surface.wait_for(
            lambda view: any(approval_of(pending).revision == 2 for pending in view.awaiting)
        )
        assert approval_of(edited.awaiting[0]).requirements.self_approval is SelfApproval.OUTSIDER
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)


async def test_an_edit_does_not_remove_the_requirements_of_a_rule(harness: EngineHarness) -> None:
    only_ben = ApprovalRequirements((frozenset({"test:ben"}),))
    harness.rules = RuleBook(Policies(rules=(Rule(ASK, requirements=only_ben),)), APPROVERS, is_pinned)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        harness.rules.replace_file(Policies())
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "bread"}, Member(ANA))
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)
        assert await approve(engine, step, BEN, revision=2) == Decided(DecisionType.APPROVE)


async def test_an_edit_does_not_bring_a_card_back_that_a_rule_sent_elsewhere(harness: EngineHarness) -> None:
    desk = frozenset({f"{HALL.workspace_key}:desk"})
    elsewhere = Rule(ASK, requirements=ApprovalRequirements(deliver=desk))
    harness.rules = RuleBook(Policies(rules=(elsewhere,)), APPROVERS, is_pinned)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        harness.rules.replace_file(Policies())
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "bread"}, Member(ANA))
        edited = await harness.log.get_approval(approval_of(step).id)
        assert edited is not None
        assert approval_of(edited[1]).requirements.deliver == desk
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)


async def test_an_asker_who_was_unknown_at_the_request_gets_no_right_by_an_edit(harness: EngineHarness) -> None:
    harness.surface = hall = Hall(away=True)
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        hall.away = False
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "bread"}, Member(ANA))
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)


@pytest.mark.parametrize("notice", [ApprovalNotice.MENTION, ApprovalNotice.PRIVATE])
async def test_approvers_are_told_once_in_private_of_a_call_that_an_edit_makes_theirs(
    harness: EngineHarness, notice: ApprovalNotice
) -> None:
    harness.surface = surface = Hall()
    engine = harness.engine(approval_notice=notice)
    async with running(engine), running(harness.notices):
        _, step = await ask_and_wait(harness, engine)
        await until_posted(harness, approval_of(step))
        for revision in (1, 2):
            text = f"for @eve, {revision}"
            await engine.approvals.revise(approval_of(step).id, revision, {"text": text}, Member(ANA))
            await until(lambda: bool(surface.notices))
    ((person, text),) = surface.notices
    assert person == "ben"
    assert text.startswith("Ana asks for approval of notes.add")


async def test_others_words_keep_their_mark_through_an_edit(harness: EngineHarness) -> None:
    page = tool("web__page", read_only=True, server_id="w1", flow=Flow(Words.STRANGERS, Sends.CLOSED))
    harness.toolbox.add(page)
    harness.toolbox.add(replace(ADD, flow=Flow(Words.OWN, Sends.TEAM)))
    assert harness.rules is not None
    harness.rules.replace_file(Policies(rules=(Rule(ALLOW, server="web"),)))
    engine = harness.engine(taint=TaintMode.ASK)
    async with running(engine):
        harness.model.script = [ask_for(call("web__page")), ask_for(call("notes__add", text="milk")), say("Done.")]
        await engine.receive(message("read it and note it"))
        view = await harness.surface.wait_for(lambda view: bool(view.awaiting))
        step = view.awaiting[0]
        assert approval_of(step).requirements.self_approval is SelfApproval.TAINT
        assert isinstance(await approve(engine, step), NotAllowed)
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "bread"}, Member(ANA))
        assert isinstance(await approve(engine, step, revision=2), NotAllowed)
        assert await approve(engine, step, BEN, revision=2) == Decided(DecisionType.APPROVE)


async def test_a_call_that_is_run_again_is_decided_by_the_same_rule(harness: EngineHarness) -> None:
    assert harness.rules is not None
    harness.rules.replace_file(Policies(default=ALLOW))

    async def lost(_call: ToolCall, _context: CallContext) -> ToolOutcome:
        return CallOutcomeUnknown("The connection broke.")

    for wanted, may in ((ADD, True), (WIPE, False)):
        harness.toolbox.add(wanted, lost)
        engine = harness.engine()
        async with running(engine):
            harness.model.script = [ask_for(call(wanted.name)), say("Perhaps.")]
            receipt = await engine.receive(message(f"try {wanted.name}"))
            view = await harness.surface.wait_for_end(receipt.turn_id)
            (step,) = (each for each in view.steps if isinstance(each, ToolStep))
            assert step.status is StepStatus.UNKNOWN
            again = await engine.run_again(receipt.turn_id, step.n, ANA)
            view = await harness.surface.wait_for(lambda view: view.turn.id == again.turn_id and bool(view.awaiting))  # noqa: B023
            assert isinstance(await approve(engine, view.awaiting[0]), Decided) is may


async def test_a_call_that_its_asker_may_approve_disturbs_no_approver(harness: EngineHarness) -> None:
    reminding = Rule(ASK, requirements=ApprovalRequirements(expires=600.0, remind=True))
    harness.rules = RuleBook(Policies(rules=(reminding,)), APPROVERS, is_pinned)
    harness.surface = surface = Hall()
    engine = harness.engine(approval_notice=ApprovalNotice.PRIVATE)
    async with running(engine), running(harness.notices):
        _, step = await ask_and_wait(harness, engine)
        assert approval_of(step).possible_approvers.with_notice(ApprovalNotice.PRIVATE) == ()
        await until_posted(harness, approval_of(step))
        harness.clock[0] += 301
        await until(lambda: bool(surface.notices))
    ((person, text),) = surface.notices
    assert person == "ana"
    assert text.endswith("still awaits approval. It needs Ana.")


async def test_approvers_who_were_mentioned_before_an_edit_are_not_notified_again(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, call("notes__wipe", note="7"))
        await engine.approvals.revise(approval_of(step).id, 1, {"note": "8"}, Member(ANA))
        edited = await harness.log.get_approval(approval_of(step).id)
        assert edited is not None
        assert approval_of(edited[1]).revision == 2
        assert approval_of(edited[1]).possible_approvers == approval_of(step).possible_approvers
        assert approval_of(step).possible_approvers.with_notice(ApprovalNotice.MENTION)


async def test_an_edited_call_without_approvers_to_notify_notifies_none(harness: EngineHarness) -> None:
    engine = harness.engine(approval_notice=ApprovalNotice.NONE)
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        await engine.approvals.revise(approval_of(step).id, 1, {"text": "for @eve"}, Member(ANA))
        edited = await harness.log.get_approval(approval_of(step).id)
        assert edited is not None
        assert [approver.notice for approver in approval_of(edited[1]).possible_approvers.all] == [ApprovalNotice.NONE]


# ------------------------------------------------------------------ grants


async def grant(engine: Engine, step: ToolStep, wanted: GrantRequest = THREAD, who: Author = ANA) -> DecisionResult:
    decision = Decision(approval_of(step).id, 1, DecisionType.APPROVE, who)
    return await engine.approvals.grant(decision, wanted, Member(who))


async def is_asked(harness: EngineHarness, engine: Engine, *calls: ToolCall) -> bool:
    """Return True if the calls of the next question await approval. The turn is stopped then."""
    harness.model.script = [ask_for(*calls), say("Done.")]
    receipt = await engine.receive(message(f"next {len(harness.model.requests)}"))
    view = await harness.surface.wait_for(
        lambda view: view.turn.id == receipt.turn_id and (bool(view.awaiting) or view.turn.status.ended)
    )
    if view.awaiting:
        await engine.stop(receipt.turn_id, ANA)
    return bool(view.awaiting)


@pytest.mark.parametrize("wanted", [THREAD, GrantRequest(ArgumentsScope()), GrantRequest(HoursScope(1))])
async def test_a_grant_of_the_asker_covers_calls_that_the_asker_may_approve(
    harness: EngineHarness, wanted: GrantRequest
) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await grant(engine, step, wanted) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
        assert not await is_asked(harness, engine, call("notes__add", text="milk"))
    assert await audit_entries(harness, "decided") == [("decided", "test:ana", "asker: not destructive")]


@pytest.mark.parametrize(
    ("who", "covered"),
    [(ANA, False), (BEN, True)],
    ids=["of the asker", "of an approver"],
)
async def test_a_grant_of_the_asker_does_not_cover_other_calls(
    harness: EngineHarness, who: Author, covered: bool
) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        assert await grant(engine, step, who=who) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)
        assert await is_asked(harness, engine, call("notes__add", text="for @eve")) is not covered


@pytest.mark.parametrize(("who", "covered"), [(ANA, False), (BEN, True)], ids=["of the asker", "of an approver"])
async def test_a_grant_of_the_asker_ends_where_only_approvers_approve(
    harness: EngineHarness, who: Author, covered: bool
) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        await grant(engine, step, who=who)
        await harness.surface.wait_for_end(turn_id)
        assert harness.rules is not None
        harness.rules.replace_file(Policies(self_approval=False))
        assert await is_asked(harness, engine, call("notes__add", text="milk")) is not covered


@dataclass
class StrictMeanwhile(FakeToolbox):
    """A toolbox that turns self-approval off just before a granted call is sent."""

    rules: RuleBook = field(default_factory=RuleBook)

    async def confirm(self, server_id: str, context: CallContext) -> str:
        if self.calls:
            self.rules.replace_file(Policies(self_approval=False))
        return await super().confirm(server_id, context)


@pytest.mark.parametrize(("who", "runs"), [(ANA, False), (BEN, True)], ids=["of the asker", "of an approver"])
async def test_a_call_on_a_grant_of_the_asker_is_looked_at_again_before_it_is_sent(
    harness: EngineHarness, who: Author, runs: bool
) -> None:
    assert harness.rules is not None
    harness.toolbox = StrictMeanwhile(rules=harness.rules)
    harness.toolbox.add(ADD)
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(harness, engine)
        await grant(engine, step, who=who)
        await harness.surface.wait_for_end(turn_id)
        harness.model.script = [ask_for(call("notes__add", text="bread")), say("Done.")]
        receipt = await engine.receive(message("once more"))
        view = await harness.surface.wait_for_end(receipt.turn_id)
    (step,) = (each for each in view.steps if isinstance(each, ToolStep))
    assert step.grant is not None
    assert step.status is (StepStatus.DONE if runs else StepStatus.FAILED)
    assert len(harness.toolbox.calls) == 1 + runs


async def test_a_grant_of_the_asker_approves_no_waiting_call_that_the_asker_could_not(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        turn_id, step = await ask_and_wait(
            harness, engine, call("notes__add", "c1", text="milk"), call("notes__add", "c2", text="for @eve")
        )
        await grant(engine, step)
        view = await harness.surface.wait_for(
            lambda view: view.turn.id == turn_id and [each.call.id for each in view.awaiting] == ["c2"]
        )
        assert await approve(engine, view.awaiting[0], BEN) == Decided(DecisionType.APPROVE)
        await harness.surface.wait_for_end(turn_id)


@pytest.mark.parametrize(
    "wanted", [GrantRequest(PermanentScope()), replace(THREAD, everyone=True), replace(THREAD, destructive=True)]
)
async def test_an_asker_grants_nothing_that_takes_an_admin(harness: EngineHarness, wanted: GrantRequest) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine)
        assert await grant(engine, step, wanted) == NotAllowed("Only an admin can allow that.")
    assert harness.toolbox.calls == []


async def test_an_asker_grants_nothing_for_a_call_that_needs_an_approver(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        _, step = await ask_and_wait(harness, engine, call("notes__add", text="for @eve"))
        assert isinstance(await grant(engine, step), NotAllowed)
    assert harness.toolbox.calls == []


def test_hints_of_a_tool_decide_whether_it_may_delete() -> None:
    hints = {
        (read, destroys): replace(ADD, annotations=Annotations(read, destroys)).may_delete
        for read in (None, False, True)
        for destroys in (None, False, True)
    }
    assert {key for key, may in hints.items() if not may} == {
        (None, False), (False, False), (True, None), (True, False), (True, True)
    }  # fmt: skip
