"""Command replies, and the Home tab."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import ApprovalRef, OpenConfirmation, RunCommand, ViewCall
from bot.chat.approval_inbox import NOTHING_WAITS, PendingCall
from bot.chat.command_runner import reply_message
from bot.chat.home_message import WELCOME, Home
from bot.domain.commands import ActionStyle, Reply, ReplyAction, Table
from bot.domain.turns import StepStatus
from bot.platforms.slack.blocks import decode
from bot.platforms.slack.home import home_view
from bot.platforms.slack.message_blocks import command_reply
from bot.ports.platform import OpenElicitation
from tests.platforms import sample_views
from tests.platforms.sample_views import LISTING, NOW, SHOWN
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import button_action, check_message, check_view, labels


def reply_outline(reply: Reply) -> str:
    sheet = command_reply(reply_message(reply))
    check_message(sheet.blocks, sheet.text)
    return outline(sheet.blocks)


def test_a_reply_has_its_text_its_table_its_buttons_and_its_page() -> None:
    assert (
        reply_outline(LISTING)
        == """\
*MCP servers* · 4 · 1 needs you
| * * | *name* | *transport* | *tools* | *policy* |
| 🟢 | github | HTTP | 31 | ask for writes |
| 🟢 | grafana | HTTP | 12 | reads allowed |
| 🟡 | jira | HTTP | 8 | off until reviewed |
| ⚪ | files | stdio | 8 | off |
  . Page 1 of 3
[Add server](primary) [Review jira] [More ▶]"""
    )


def test_its_buttons_say_commands() -> None:
    sheet = command_reply(reply_message(LISTING))
    assert decode(*button_action(sheet.blocks, "Review jira")) == RunCommand(("mcp", "review", "jira"))
    assert decode(*button_action(sheet.blocks, "More ▶")) == RunCommand(("mcp", "list", "--page", "2"))


def test_details_stand_behind_their_names_and_dangerous_actions_ask_first() -> None:
    assert (
        reply_outline(SHOWN)
        == """\
*jira* is connected.
*address: *https://mcp.jira.example/
*tools: *8 (3 write)
*policy: *ask
[Remove jira](danger)"""
    )
    sheet = command_reply(reply_message(SHOWN))
    assert decode(*button_action(sheet.blocks, "Remove jira")) == OpenConfirmation(
        ("mcp", "remove", "jira"), "jira", "Remove jira"
    )


def test_foreign_text_is_literal() -> None:
    text = reply_outline(
        Reply("Look:", Table(("name",), (("**x** <!here>",),)), (("**n**", "[a](https://b.example)"),))
    )
    assert "| **x** <!here> |" in text
    assert "***n**: *[a](https://b.example)" in text


def test_in_one_message_parts_that_do_not_fit_are_counted() -> None:
    rows = tuple((f"server-{number}", "x" * 100) for number in range(150))
    sheet = command_reply(
        reply_message(Reply("All:", Table(("name", "about"), rows), actions=(ReplyAction("Add", ("mcp", "add")),)))
    )
    check_message(sheet.blocks, sheet.text)
    assert "more characters: see the file" in outline(sheet.blocks)
    assert labels(sheet.blocks) == ["Add"]
    assert not sheet.is_whole


def test_a_button_that_would_carry_too_much_is_left_out() -> None:
    assert reply_outline(Reply("Hm", actions=(ReplyAction("Go", ("mcp", "x" * 3_000)),))) == "Hm"


WORDS = st.text(max_size=300)


@given(
    st.text(max_size=12_000),
    st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=40).map(tuple),
    st.lists(st.tuples(WORDS, st.text(max_size=4_000)), max_size=10).map(tuple),
    st.lists(
        st.builds(ReplyAction, WORDS, st.tuples(WORDS), st.sampled_from(list(ActionStyle)), WORDS), max_size=30
    ).map(tuple),
)
def test_any_reply_is_within_the_limits_of_slack(
    text: str,
    rows: tuple[tuple[str, ...], ...],
    details: tuple[tuple[str, str], ...],
    actions: tuple[ReplyAction, ...],
) -> None:
    reply = Reply(text, Table(("a", "", "c"), rows), details, actions=actions)
    sheet = command_reply(reply_message(reply))
    check_message(sheet.blocks, sheet.text)


# The Home tab


def tab(home: Home) -> str:
    view = home_view(home)
    check_view(view, channels=frozenset({"C1"}))
    return outline(view["blocks"])


WAITING = PendingCall(sample_views.ASKED.turn, sample_views.a_filing(StepStatus.AWAITING))
PAYING = sample_views.a_booking(StepStatus.ASKING, sample_views.asked_back(sample_views.PAY))
CALL = f"""\
*Server* jira   *Tool* create_issue   *Risk* 🟠 Writes data
    project:     OPS
    summary:     Checkout 502s after the 14:05 deploy
    priority:    High
    label:       checkout
    description: {str(sample_views.ISSUE["description"])[:200].rstrip()}… (399 characters)
Asked by Priya · expires <at 08:30 UTC> · `3a7f3c2e`
In #C1
[Approve: Create issue](primary) [Allow in this thread] [Deny…] [Edit…] [View all] [⋯]"""
QUESTION = OpenElicitation(sample_views.SENT_AWAY.turn, PAYING, PAYING.elicitations[0])


def test_the_tab_shows_waiting_calls_questions_and_states_of_servers() -> None:
    assert (
        tab(
            Home(
                NOW,
                [WAITING],
                asked=[sample_views.ASKED.turn, sample_views.ANSWERED.turn],
                servers=sample_views.SERVERS,
            )
        )
        == f"""\
# Waiting for you (1)
*Create issue “Checkout 502s after the 14:05 deploy” (jira)?*
{CALL}
# What you asked for
◇ waits for an approval   why did checkout 502 after the deploy?
✓ answered   why did checkout 502 after the deploy?
# Servers (3) · 1 in trouble
🔴 jira   failed · 0 tools
🟢 github   connected · 31 tools
🟢 grafana   idle · 12 tools
[Open the list]
Updated <now>"""
    )


def test_the_tab_shows_questions_of_servers_with_the_buttons_of_the_card() -> None:
    assert (
        tab(Home(NOW, [WAITING], [QUESTION], asked=[sample_views.SENT_AWAY.turn]))
        == f"""\
# Waiting for you (2)
*travel wants a page visited*
*Server* travel   *Tool* book_train
*The page is on* `pay.example.com`
*The server says:*
> Confirm the payment of £84.00 with your bank.
expires <at 08:30 UTC>
[Show the link…](primary) [Decline]
*Create issue “Checkout 502s after the 14:05 deploy” (jira)?*
{CALL}
# What you asked for
◇ waits for your answer   why did checkout 502 after the deploy?
Updated <now>"""
    )
    assert NOTHING_WAITS not in tab(Home(NOW, inquiries=[QUESTION]))


def test_its_buttons_open_the_call_and_the_list() -> None:
    blocks = home_view(Home(NOW, [WAITING], servers=sample_views.SERVERS))["blocks"]
    assert decode(*button_action(blocks, "View all")) == ViewCall(ApprovalRef("3a7f3c2e9b", 1))
    assert decode(*button_action(blocks, "Open the list")) == RunCommand(("mcp", "list"))


def test_a_member_sees_no_servers_and_a_first_visit_is_welcomed() -> None:
    text = tab(Home(NOW, first_visit=True))
    assert "Servers" not in text
    assert WELCOME in text
    assert NOTHING_WAITS in text
    assert WELCOME not in tab(Home(NOW))


def test_long_lists_are_counted_and_stay_below_the_limits_of_slack() -> None:
    asked, servers = [sample_views.ASKED.turn] * 60, sample_views.SERVERS * 30
    text = tab(Home(NOW, [WAITING] * 60, [QUESTION] * 60, asked, servers, first_visit=True))
    assert text.count("[Show the link…]") == 10
    assert text.count("[View all]") == 10
    assert text.count("and 50 more") == 2
    counted = tab(Home(NOW, [WAITING] * 10, more_waiting=7))
    assert "Waiting for you (17)" in counted
    assert counted.count("and 7 more") == 1
    assert "and 80 more" in text
