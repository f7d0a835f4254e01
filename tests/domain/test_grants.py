"""Scope of a grant: a narrower grant never lets more calls run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.grants import CallToCover, Grant, covers, requirements_digest

PEOPLE = ("slack:ana", "slack:ben")
THREADS = tuple(ConversationKey("slack", w, "C1", t) for w in ("T1", "T2") for t in ("1", "2"))
TERMS = st.builds(
    ApprovalRequirements,
    approvers=st.sampled_from(
        [(), (frozenset({"slack:ana"}),), (frozenset({"slack:ben"}), frozenset({"slack-group:S1"}))]
    ),
    four_eyes=st.booleans(),
    quorum=st.integers(1, 2),
    expires=st.sampled_from([None, 60.0]),
)
words = st.sampled_from(["a", "b"])
WANTED = st.builds(
    CallToCover,
    server=words,
    tool=words,
    definition=words,
    fingerprint=words,
    conversation=st.sampled_from(THREADS),
    asker=st.sampled_from(PEOPLE),
    destructive=st.booleans(),
    rule=words,
    requirements=TERMS,
)
GRANTS = st.builds(
    Grant,
    id=st.just("g"),
    scope=st.just("x"),
    server=words,
    server_name=st.just("s"),
    tool=words,
    definition=words,
    place=st.sampled_from([*map(str, THREADS), *(thread.workspace_key for thread in THREADS)]),
    person=st.sampled_from(["", *PEOPLE]),
    granted_by=st.sampled_from(PEOPLE),
    granted_name=st.just(""),
    approval_id=st.just(""),
    rule=words,
    requirements_digest=TERMS.map(requirements_digest),
    fingerprint=st.sampled_from(["", "a", "b"]),
    destructive=st.booleans(),
)


def meant_for(wanted: CallToCover, **more: object) -> Grant:
    """Return the widest grant that covers this call."""
    widest = Grant(
        "g", "x", wanted.server, "s", wanted.tool, wanted.definition, wanted.conversation.workspace_key, "",
        "slack:cleo", "",
        "", wanted.rule, requirements_digest(wanted.requirements), "", destructive=True,
    )  # fmt: skip
    return replace(widest, **more)  # type: ignore[arg-type]


@given(GRANTS, WANTED)
def test_a_call_is_covered_by_the_widest_grant_for_it(grant: Grant, wanted: CallToCover) -> None:
    if covers(grant, wanted):
        assert covers(meant_for(wanted), wanted)
        assert covers(replace(grant, place=wanted.conversation.workspace_key), wanted)
        assert covers(replace(grant, person=""), wanted)
        assert covers(replace(grant, fingerprint=""), wanted)
        assert covers(replace(grant, destructive=True), wanted)


@given(WANTED)
def test_the_widest_grant_covers_all_calls_of_one_approval(wanted: CallToCover) -> None:
    assert covers(meant_for(wanted), wanted) == (wanted.requirements.quorum == 1)


@given(GRANTS, WANTED, WANTED)
def test_a_grant_covers_a_call_by_its_content_and_not_by_its_expiry(
    grant: Grant, wanted: CallToCover, other: CallToCover
) -> None:
    timed = replace(wanted, requirements=replace(wanted.requirements, expires=30.0, remind=True))
    assert covers(grant, timed) == covers(grant, wanted)
    for name in ("server", "tool", "definition", "rule"):
        value = getattr(other, name)
        if value != getattr(wanted, name) and covers(grant, wanted):
            assert not covers(grant, replace(wanted, **{name: value}))


@given(GRANTS, WANTED)
def test_nothing_destructive_runs_on_a_grant_that_does_not_say_so(grant: Grant, wanted: CallToCover) -> None:
    assert not covers(replace(grant, destructive=False), replace(wanted, destructive=True))


@given(WANTED, st.sampled_from(PEOPLE))
def test_a_user_does_not_grant_themselves_a_call_under_four_eyes(wanted: CallToCover, person: str) -> None:
    four = replace(wanted, asker=person, requirements=ApprovalRequirements(four_eyes=True))
    assert not covers(meant_for(four, granted_by=person), four)
    assert covers(meant_for(four, granted_by="slack:cleo"), four)


@given(WANTED)
def test_a_grant_of_one_thread_holds_in_no_other(wanted: CallToCover) -> None:
    one = replace(wanted, requirements=ApprovalRequirements())
    grant = meant_for(one, place=str(one.conversation))
    assert [covers(grant, replace(one, conversation=thread)) for thread in THREADS] == [
        thread == one.conversation for thread in THREADS
    ]
