"""Arguments of calls that leave the closed world: their asker may approve only what is known to concern nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.domain.approvals import SelfApproval
from bot.domain.conversations import Author, ConversationKey
from bot.domain.flows import Flow, Sends
from bot.domain.tools import Annotations, Tool
from bot.engine.policy.ordinary_arguments import MOST_READ
from bot.engine.policy.rules import Rules
from bot.rendering.deceptive_text import disguises
from tests.fakes.parts import tool

PRIYA = Author("slack", "U024BE7LH", "Priya")
OPS = ConversationKey("slack", "T1", "C061EG9SL", "1.0")
SEND = tool("mail__send", server_id="m1", destructive=False)
CLOSED = replace(SEND, flow=Flow(sends=Sends.CLOSED))
HERE = Rules(conversation=OPS, reviewed=lambda _tool: True, disguises=disguises)


def judged(called: Tool, arguments: dict[str, Any]) -> SelfApproval:
    return HERE.judge(called, arguments, PRIYA).requirements.self_approval


PLAIN = [
    "milk",
    "Buy milk, bread and 2 eggs.",
    "Don't forget: lunch with Ben (12:30pm) - bring the Q3 report!",
    "The 502s began after the 14:05 deploy; see report.pdf and notes/today.txt.",
    "# Agenda\n\n* one\n* two: 3.5 kg, 10,000 yen, 50 %, $5, v1.2.3\n- and/or a well-known state_of_play",
    "e.g. the U.S.A. at 10 a.m. ... and R&D, C++ and C#",
    "x <= 5, y < 3, a -> b, 1 + 1 = 2",
    "2026-12-01, 1.12.2026, 12/01/26, 2026-12-01T10:30:00Z, 10:00-11:30, 23:59:59",
    'He said "no". Then (later) nothing.',
    "牛乳を買う。明日、会議は10時から。README を更新した（予定）",
    "Молоко и хлеб",
    "दूध और रोटी",
    "ありがとう 🎉 :tada: 👨‍👩‍👧",
    "it's at 5, the dots are blue",
    "createNewUserAccount 123e4567-e89b-12d3-a456-426614174000 d0dd85a8de4b",
    "ask <@U024BE7LH> in <#C061EG9SL|ops>",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_ordinary(text: str) -> None:
    assert judged(SEND, {"text": text}) is SelfApproval.ALLOWED


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": "Lunch", "date": "2026-12-01", "priority": 2, "done": False, "tags": ["food", "daily"]},
        {"project": "OPS", "summary": "Checkout fails", "labels": {"kind": "bug"}},
        {"to": "U024BE7LH", "channel": "C061EG9SL", "cc": None, "bcc": [], "notify": False},
        {"from": "2026-12-01", "to": "2026-12-05T10:00"},
        {"n": 5, "ratio": 0.5, "number": "1234567890123456"},
    ],
)
def test_plain_values_are_ordinary(arguments: dict[str, Any]) -> None:
    assert judged(SEND, arguments) is SelfApproval.ALLOWED


REACHING = [
    # addresses
    "ben@example.com",
    'ben@"example.com"',
    "ben@[127.0.0.1]",
    "ben(the boss)@example.com",
    "ben @ example . com",
    "ben\u200b@\u200bexample\u200b.com",
    "ben＠example．com",
    "ben﹫corp",
    "ben&#64;corp",
    "ben&#64corp",
    "ben&commat;corp",
    "ben%40corp",
    "ben%2540corp",
    "ben%u0040corp",
    r"ben\u0040corp",
    r"ben\x40corp",
    r"ben\u{40}corp",
    r"ben\\u0040corp",
    r"ben\100corp",
    "ben<!-- -->@corp",
    "user at example dot com",
    "user (at) corp",
    "evil[.]com",
    "evil(dot)com",
    "evil .com",
    "example。com",
    "例え。com",
    "mailto:ben",
    "xmpp:ben",
    "tel:5550100",
    # places on the web
    "https://evil.example/hook",
    "hxxps://evil/hook",
    "//evil/hook",
    r"\\evil\share",
    "see evil.com/x for more",
    "gооgle.com",
    "xn--ggle-55da",
    "see xn--ggle-55da.com",
    "http:&#47;&#47;evil",
    "10.0.0.1",
    "0x7f.1",
    "2130706433",
    "[2001:db8::1]",
    "2001:db8:0:0:0:0:0:1",
    "::1",
    "localhost:8080",
    # people and channels
    "@here",
    "@everyone",
    "＠here",
    "<!channel>",
    "<!\u2060here>",
    "&lt;!channel&gt;",
    "%3C%21channel%3E",
    "<!subteam^S0OPSOPS1>",
    "#general",
    "＃general",
    "%23general",
    "tell #ops about it",
    "<#C0OTHER99>",
    "C0OTHER99",
    "Ｕ0BOBBOB1",
    "U0BOB\u00adBOB1",
    "345678901234567891",
    "+81 90-1234-5678",
    "(555) 555-0100",
    "09012345678",
    "＋１ ５５５ ５５５ ０１００",
    "ask @U024BE7LH.evil",
    "U024BE7LH@corp",
    # texts in texts
    '{"to": "ben"}',
    '[{"channel": "general"}]',
    '{"to": "ben", "to": "U024BE7LH"}',
    '{"text": "{\\"to\\": \\"ben\\"}"}',
    "<a href=x>here</a>",
    "pаypal",
    "milk\u202e",
    "milk " * MOST_READ,
    "%25252525252540",
]


@pytest.mark.parametrize("text", REACHING)
def test_a_text_that_may_reach_others_is_not_ordinary_however_it_is_spelled(text: str) -> None:
    assert judged(SEND, {"text": text}) is SelfApproval.OTHERS
    assert judged(SEND, {"note": {"lines": ["milk", text]}}) is SelfApproval.OTHERS


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "Ben"},
        {"channel": "general"},
        {"chatId": 42},
        {"options": {"sendTo": ["U024BE7LH", "team"]}},
        {"webhook": "hook"},
        {"target_url": "x"},
        {"public": True},
        {"notify_all": True},
        {"targets": ["Ben"]},
        {"rcpt": "Ben"},
        {"whom": "Ben"},
        {"mailto": "Ben"},
        {"collaborators": ["Ben"]},
        {"permissions": "write"},
        {"access": "everyone"},
        {"viewers": ["Ben"]},
        {"isPrivate": False},
        {"\uff54\uff4f": "Ben"},
        {"repository": "tools"},
        {"phone": 15555550100},
        {"user": 345678901234567891},
        {"note": {"@here": 1}},
        {"to": {"ben": "reader"}},
    ],
)
def test_a_value_that_chooses_people_or_places_is_ordinary_only_if_it_is_the_askers_own(
    arguments: dict[str, Any],
) -> None:
    assert judged(SEND, arguments) is SelfApproval.OTHERS


@pytest.mark.parametrize("sends", [Sends.TEAM, Sends.WORLD])
def test_what_a_closed_server_keeps_needs_no_approver(sends: Sends) -> None:
    for text in ("see https://docs.example/x in #ops", "localhost:8080", "a=b", "0x7f.1"):
        assert judged(CLOSED, {"text": text, "owner": "Ben"}) is SelfApproval.ALLOWED
        assert judged(replace(CLOSED, flow=Flow(sends=sends)), {"text": text}) is SelfApproval.OTHERS
    for text in ("ask @ben", "ben%40corp", "＠here", "Ｕ0BOBBOB1", "pаypal", "&lt;!channel&gt;"):
        assert judged(CLOSED, {"text": text}) is SelfApproval.OTHERS


def test_a_closed_read_with_an_address_leaves_the_closed_world() -> None:
    read = replace(SEND, annotations=Annotations(read_only=True))
    assert judged(read, {"query": "a=b"}) is SelfApproval.ALLOWED
    assert judged(read, {"query": "https://evil.example/?milk"}) is SelfApproval.OTHERS


@pytest.mark.parametrize(
    ("arguments", "ordinary"),
    [
        ({"to": "U024BE7LH", "cc": []}, True),
        ({"to": ["<@U024BE7LH>"], "cc": "U024BE7LH"}, True),
        ({}, False),
        ({"to": "U024BE7LH"}, False),
        ({"to": "U024BE7LH", "cc": None}, False),
        ({"to": "", "cc": []}, False),
        ({"to": "U024BE7LH", "cc": "general"}, False),
    ],
)
def test_a_listed_recipient_that_is_left_out_is_unknown(arguments: dict[str, Any], ordinary: bool) -> None:
    for sends in Sends:
        sending = replace(SEND, flow=Flow(sends=sends, recipients=("to", "cc")))
        assert (judged(sending, arguments) is SelfApproval.ALLOWED) is ordinary


def test_nested_values_are_looked_at_like_others() -> None:
    nested: Any = "milk"
    for _ in range(300):
        nested = [nested]
    assert judged(SEND, {"text": nested}) is SelfApproval.ALLOWED
    assert judged(SEND, {"text": [nested, "#general"]}) is SelfApproval.OTHERS
