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


def judge_self_approval(called: Tool, arguments: dict[str, Any]) -> SelfApproval:
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
    "$1,200.50",
    "1.200,50 €",
    "see notes.md",
    "Version 3.11.4",
    "9-17 Uhr",
    "やることリスト：掃除、洗濯",
    "会議メモ。決定事項：なし。",
    "20%増",
    "S. 45-60",
    "C# and .NET",
    "100 200 300",
    "10 000 EUR",
    "1 200 000 EUR",
    "1,200,000",
    "1,200,000.50",
    "1.234.567,89 €",
    "€ 10 000",
    "¥10,000",
    "50%off",
    "50 % off, 20% more",
    "pp. 45-60",
    "Seiten 45–60",
    "Mo-Fr 9-17 Uhr",
    "9:00-17:30 Uhr",
    "fiscal year 2025-2026",
    "2025/26",
    "2025–2026",
    "人数：20名",
    "場所：会議室、時間：10時から",
    "時間：10:00",
    "担当者：なし",
    "売上30％減",
    "第3四半期の売上は20%増。",
    "三菱との会議、十時から",
    "二〇二六年十二月一日",
    "README.md",
    "Update README.md and CHANGELOG.md.",
    "Python 3.12 and C++17",
    "F# or .NET 8",
    ".NET 8 migration",
    "ISO 8601",
    "RFC 2119",
    "HTTP 404",
    "Room 101",
    "room 3-14",
    "item 12/34",
    "2 x 4 cm",
    "12.5 kg",
    "0.5",
    "-5 °C",
    "a 3-4 week plan",
    "Q3 2026",
    "INC-12345",
    "JIRA OPS-42",
    "v2.10.3",
    "3.11.4",
    "version 2024.11.4",
    "order 12345678",
    "24/7",
    "50/50",
    "1/2 cup",
    "½ cup",
    "10 km/h",
    "e.g. the plan",
    "etc. and so on",
    "approx. five",
    "z. B. das Brot",
    "Mr. Smith",
    "Dr. No",
    "vs. them",
    "No. 5",
    "Nr. 12",
    "Call Ben at noon",
    "Sit. Stay.",
    "It works. Really!",
    "Frühstück: Brot, Käse",
    "Привет: молоко",
    "- [ ] milk\n- [x] bread",
    "1. milk\n2. eggs\n3. bread",
    "1) milk 2) eggs",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "**bold** and _it_",
    "`code`",
    "Tom & Jerry",
    "rock'n'roll",
    "¿Qué tal?",
    "¡Hola!",
    "10,000 yen",
    "50 €, 20 €",
    "20-30%",
    "3–4",
    "10:30 Uhr",
    "14h30",
    "5 PM",
    "12/24",
    "2026年12月1日",
    "12月1日（火）10:00〜11:00",
    "牛乳１本、卵２個",
    "100円",
    "meeting of dots",
    "state_of_play",
    "createNewUserAccount",
    "the quick brown fox jumps over the lazy dog",
    "internationalization",
    "SGVsbG8gd29ybGQ=",
    "123e4567-e89b-12d3-a456-426614174000",
    "d0dd85a8de4b",
    "one two three",
    "price: 1,299.00",
    "10, 20, 30, 40",
    "1, 2, 3",
    "true",
    "e-mail",
    "the Visual System",
    "Ticket status: PERIOD",
    "typeof x",
    "ReactionType and ItemTips",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_ordinary(text: str) -> None:
    assert judge_self_approval(SEND, {"text": text}) is SelfApproval.ALLOWED


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
    assert judge_self_approval(SEND, arguments) is SelfApproval.ALLOWED


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
    "0170/1234567",
    "〇九〇-1234-5678",
    "0 1 7 0 1 2 3 4 5 6 7",
    "0x7f000001",
    "evil. com/x",
    "ZXZpbC5jb20=",
    "YmVuQGV4YW1wbGUuY29t",
    "aHR0cHM6Ly9ldmlsLmV4YW1wbGUvaG9vaw==",
    "ZXZpbC5jb20",
    "MV3GS3BOMNXW2===",
    "6576696c2e636f6d",
    "WlhacGJDNWpiMjA9",
    "see YmVuQGNvcnA= please",
    "ZXZp bC5j b20=",
    "/dm ben",
    "/invite ben",
    "milk\n/dm ben",
    "!invite ben",
    "／dm ben",
    "0170 1234567",
    "0170-123-4567",
    "0170.1234567",
    "0170_1234567",
    "0170,1234567",
    "(0170) 1234567",
    "0170 / 12 34 567",
    "0170 – 1234567",
    "0170·1234567",
    "0170\n1234567",
    "tel0170123456789",
    "090ー1234ー5678",
    "090の1234の5678",
    "零九〇一二三四五六七八",
    "٠٩٠١٢٣٤٥٦٧٨",
    "०९०१२३४५६७८",
    "0\ufe0f⃣9\ufe0f⃣0\ufe0f⃣1\ufe0f⃣2\ufe0f⃣3\ufe0f⃣4\ufe0f⃣5\ufe0f⃣6\ufe0f⃣7\ufe0f⃣8\ufe0f⃣",
    "⓪⑨⓪①②③④⑤⑥⑦⑧",
    "𝟎𝟗𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖",
    "06 12 34 56 78",
    "06.12.34.56.78",
    "612 345 678",
    "555-0100",
    "call 0170 12 34 567 now",
    "+49 170 1234567",
    "0049 170 1234567",
    "five five five zero one zero zero",
    "null eins sieben null eins zwei drei",
    "10 . 0 . 0 . 1",
    "10[.]0[.]0[.]1",
    "10。0。0。1",
    "0x7f.0.0.1",
    "017700000001",
    "0xA000001",
    "evil.\ncom",
    "evil. net",
    "evil. com",
    "evil. ru/x",
    "evil_dot_com",
    "evil-dot-com",
    "evil dot com",
    "evil ドット com",
    "ben [ät] corp",
    "ben-at-corp",
    "ben アットマーク corp",
    "ben (アット) corp",
    "xmpp：太郎",
    "mailto：ben",
    "例え：8080",
    "ben+AEA-corp",
    "ben=40corp",
    "Bcc: ben",
    "To: everyone",
    "cc：ben",
    "x\nReply-To: ben",
    "evil.md",
    "evil.md/x",
    "notes.md/x",
    "notes.md.evil",
    "foo.notes.md",
    "evil .NET",
    "x.NET",
    "evil.com notes.md",
    "ben\\N{COMMERCIAL AT}corp",
    "&#x40;here",
    "&#64here",
    "%2F%2Fevil",
    "%E2%80%8B@here",
    "\u2067@here",
    "ev\u200bil.com",
    "ｅｖｉｌ．ｃｏｍ",
    "@\ufe0fhere",
    "ⓔⓥⓘⓛ.ⓒⓞⓜ",
    "ⅇvil.com",
    "1.2.3.4:80",
    "0170 2026-12-01 34567",
    "0170 1,234,567",
    '{"to":"ben"}',
    'milk\n{"to": 1}',
    '﹛"to": 1﹜',
    "例え。みんな/x",
    "&lt;@U0BOBBOB1&gt;",
    "\\u003c!here\\u003e",
    "a<b>@x",
    "+1-800-555-0199",
    "1 800 555 0199",
    "００１２３４５６７",
    "U0BOBBOB1",
    "345 678 901 234 567 891",
    "MDE3MCAxMjM0NTY3",
    "QGhlcmU=",
    "I2dlbmVyYWw=",
]


@pytest.mark.parametrize("text", REACHING)
def test_a_text_that_may_reach_others_is_not_ordinary_however_it_is_spelled(text: str) -> None:
    assert judge_self_approval(SEND, {"text": text}) is SelfApproval.OTHERS
    assert judge_self_approval(SEND, {"note": {"lines": ["milk", text]}}) is SelfApproval.OTHERS


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
    assert judge_self_approval(SEND, arguments) is SelfApproval.OTHERS


MAY_CHOOSE = """
    to empfaenger empfänger 宛先 destinatario destinataire kanal who grantee principal acl mailing_list
    distribution_list list_id peer hook space spaceId topic queue delegate sendAs on_behalf_of recipient bcc webhook
    url chatId sendTo channel_name message_id messageId comment_id conversation 受信者 チャンネル получатель alıcı
    ontvanger mottagare room_id owner team everyone audience subscriber first_name username assigned_by author reviewer
    cohost host org repo board folder calendar_id database_id parent device phone_number number_of_user email_subject x
    customfield_10010 target sms site bucket isPrivate draft silent topicId 推送 grupo ＴＯ text_channel
"""
CONTENT = """
    title text body note notes query Subject summary description issueTitle issue_title due_date dueDate startTime
    end_time priority status labels tag tags item items amount page_size limit offset id task_id taskId issue_id
    fields data name 件名 本文 betreff titre asunto fileName path issuetype timeZone language format count line1 is_done
    isDone HTMLBody
"""


@pytest.mark.parametrize("name", MAY_CHOOSE.split())
def test_a_name_that_does_not_speak_of_content_may_choose_people_or_places(name: str) -> None:
    for value in ("milk", 5, 0.5, True, ["milk"], {"text": "milk"}):
        assert judge_self_approval(SEND, {name: value}) is SelfApproval.OTHERS
        assert judge_self_approval(SEND, {"fields": {name: value}}) is SelfApproval.OTHERS
    known: list[Any] = [None, "", [], "2026-12-01", PRIYA.id]
    for empty in known:
        assert judge_self_approval(SEND, {name: empty}) is SelfApproval.ALLOWED


@pytest.mark.parametrize("name", CONTENT.split())
def test_a_name_that_speaks_of_content_chooses_nobody(name: str) -> None:
    for value in ("milk", 5, 0.5, 35.6894875, 1e-7, True, False, ["milk"], {"text": "milk"}):
        assert judge_self_approval(SEND, {name: value}) is SelfApproval.ALLOWED
    for value in ("@here", 15555550100, 15555550100.0, 345678901234567891, {"@here": "milk"}, ["milk", "#general"]):
        assert judge_self_approval(SEND, {name: value}) is SelfApproval.OTHERS


@pytest.mark.parametrize("sends", [Sends.TEAM, Sends.WORLD])
def test_what_a_closed_server_keeps_needs_no_approver(sends: Sends) -> None:
    for text in ("see https://docs.example/x in #ops", "localhost:8080", "a=b", "0x7f.1"):
        assert judge_self_approval(CLOSED, {"text": text, "owner": "Ben"}) is SelfApproval.ALLOWED
        assert judge_self_approval(replace(CLOSED, flow=Flow(sends=sends)), {"text": text}) is SelfApproval.OTHERS
    for text in ("ask @ben", "ben%40corp", "＠here", "Ｕ0BOBBOB1", "pаypal", "&lt;!channel&gt;"):
        assert judge_self_approval(CLOSED, {"text": text}) is SelfApproval.OTHERS


def test_a_closed_read_with_an_address_leaves_the_closed_world() -> None:
    read = replace(SEND, annotations=Annotations(read_only=True))
    assert judge_self_approval(read, {"query": "a=b"}) is SelfApproval.ALLOWED
    assert judge_self_approval(read, {"query": "https://evil.example/?milk"}) is SelfApproval.OTHERS


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
        assert (judge_self_approval(sending, arguments) is SelfApproval.ALLOWED) is ordinary


def test_nested_values_are_looked_at_like_others() -> None:
    nested: Any = "milk"
    for _ in range(300):
        nested = [nested]
    assert judge_self_approval(SEND, {"text": nested}) is SelfApproval.ALLOWED
    assert judge_self_approval(SEND, {"text": [nested, "#general"]}) is SelfApproval.OTHERS
