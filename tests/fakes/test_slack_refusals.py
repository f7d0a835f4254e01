"""Payloads and calls that Slack rejects are rejected by the fake, as the real client reports it.

The tests of the bot rely on that: Slack would have accepted each message that they find in the fake. They also rely on
the fake to report every mention and every link preview of a message, so that an empty set means that there is none.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from slack_sdk.errors import SlackApiError
from slack_sdk.models.messages.chunk import BlocksChunk, MarkdownTextChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from tests.fakes.slack import Channel, FakeSlack, Manifest, Message, Team, User
from tests.fakes.slack.methods import METHODS

Json = dict[str, Any]

EVERYTHING = Manifest(
    scopes=frozenset(
        {
            *("app_mentions:read", "assistant:write", "chat:write", "commands", "reactions:write"),
            *("channels:history", "groups:history", "im:history", "mpim:history"),
            *("channels:read", "groups:read", "im:read", "mpim:read", "im:write"),
            *("files:read", "files:write", "users:read", "usergroups:read"),
        }
    ),
    events=frozenset({"app_mention", "message.im", "message.channels", "agent_session_stopped"}),
    commands=frozenset({"/mcp"}),
    shortcuts=frozenset(),
    agent=True,
)
"""Return an app with every scope that the fake knows."""


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(manifest=EVERYTHING) as fake:
        fake.pace.strict = False
        yield fake


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as opened:
        yield opened


@pytest.fixture
def client(slack: FakeSlack, session: ClientSession) -> AsyncWebClient:
    """The real client, without retries."""
    return AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=[])


@pytest.fixture
def priya(slack: FakeSlack) -> User:
    return slack.user("Priya")


@pytest.fixture
def channel(slack: FakeSlack, priya: User) -> Channel:
    return slack.channel("incidents", priya)


@pytest.fixture
def direct(slack: FakeSlack, priya: User) -> Channel:
    return slack.dm(priya)


@pytest.fixture
async def question(slack: FakeSlack, priya: User, direct: Channel) -> Message:
    return slack.say(priya, direct, "why?")


async def refusal(call: Awaitable[object]) -> Json:
    """Return the whole response to a call that Slack rejects."""
    with pytest.raises(SlackApiError) as caught:
        await call
    response = caught.value.response.data
    assert isinstance(response, dict)
    return response


async def code(call: Awaitable[object]) -> str:
    """Return the error code of a call that Slack rejects."""
    return str((await refusal(call))["error"])


# Blocks


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def section(**more: Any) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": "x"}, **more}


def button(**more: Any) -> Json:
    return {"type": "button", "text": plain("Go"), **more}


def options(count: int) -> list[Json]:
    return [{"text": plain(f"o{n}"), "value": f"v{n}"} for n in range(count)]


def option(text: str = "x", value: str = "v") -> list[Json]:
    return [{"text": plain(text), "value": value}]


def actions(*elements: Json) -> Json:
    return {"type": "actions", "elements": list(elements)}


def select(**more: Any) -> Json:
    return actions({"type": "static_select", "options": options(1), **more})


def button_with_dialog(**more: Any) -> Json:
    dialog = {"title": plain("t"), "text": plain("t"), "confirm": plain("y"), "deny": plain("n"), **more}
    return actions(button(confirm=dialog))


def table(rows: int, columns: int, text: str = "x") -> Json:
    return {"type": "table", "rows": [[{"type": "raw_text", "text": text}] * columns for _ in range(rows)]}


def rich(**element: Any) -> Json:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [element]}]}


def feedback(text: str) -> Json:
    side = {"text": plain(text), "value": "1"}
    buttons = {"type": "feedback_buttons", "positive_button": side, "negative_button": {**side, "text": plain("b")}}
    return {"type": "context_actions", "elements": [buttons]}


BLOCK_TEXTS: list[tuple[str, int, Callable[[str], Json]]] = [
    ("text/text", 3000, lambda text: section(text={"type": "mrkdwn", "text": text})),
    ("fields/0/text", 2000, lambda text: section(fields=[plain(text)])),
    ("text/text", 150, lambda text: {"type": "header", "text": plain(text)}),
    ("elements/0/positive_button/text/text", 75, feedback),
    ("text", 12_000, lambda text: {"type": "markdown", "text": text}),
    ("elements/0/text/text", 75, lambda text: actions(button(text=plain(text)))),
    ("elements/0/value", 2000, lambda text: actions(button(value=text))),
    ("elements/0/action_id", 255, lambda text: actions(button(action_id=text))),
    ("elements/0/url", 3000, lambda text: actions(button(url="https://a/" + text[10:]))),
    ("block_id", 255, lambda text: section(block_id=text)),
    ("elements/0/options/0/text/text", 75, lambda text: select(options=option(text))),
    ("elements/0/options/0/value", 150, lambda text: select(options=option(value=text))),
    ("elements/0/placeholder/text", 150, lambda text: select(placeholder=plain(text))),
    ("elements/0/confirm/title/text", 100, lambda text: button_with_dialog(title=plain(text))),
    ("elements/0/confirm/text/text", 300, lambda text: button_with_dialog(text=plain(text))),
    ("elements/0/confirm/deny/text", 30, lambda text: button_with_dialog(deny=plain(text))),
]
BLOCK_ITEMS: list[tuple[str, int, Callable[[int], Json]]] = [
    ("fields", 10, lambda count: section(fields=[plain("x")] * count)),
    ("elements", 10, lambda count: {"type": "context", "elements": [plain("x")] * count}),
    ("elements", 25, lambda count: actions(*[button()] * count)),
    ("elements", 5, lambda count: {"type": "context_actions", "elements": feedback("a")["elements"] * count}),
    ("elements/0/options", 100, lambda count: select(options=options(count))),
    ("accessory/options", 5, lambda count: section(accessory={"type": "overflow", "options": options(count)})),
    ("accessory/options", 10, lambda count: section(accessory={"type": "radio_buttons", "options": options(count)})),
    ("rows", 100, lambda count: table(count, 1)),
    ("rows/0", 20, lambda count: table(1, count)),
]
BLOCK_LIMITS: list[tuple[Json, Json, str]] = [
    *(
        (
            make("x" * most),
            make("x" * (most + 1)),
            f"must be less than {most + 1} characters [json-pointer:/blocks/0/{at}]",
        )
        for at, most, make in BLOCK_TEXTS
    ),
    *(
        (make(most), make(most + 1), f"no more than {most} items allowed [json-pointer:/blocks/0/{at}]")
        for at, most, make in BLOCK_ITEMS
    ),
    (
        table(1, 2, "x" * 5000),
        table(1, 2, "x" * 5001),
        "must be less than 10001 characters together [json-pointer:/blocks/0/rows]",
    ),
]
NOT_BLOCK_KIT: list[tuple[Json, str]] = [
    ({"type": "banner"}, "unsupported block type: banner [json-pointer:/blocks/0/type]"),
    ({"text": plain("x")}, "missing required field: type [json-pointer:/blocks/0]"),
    ({"type": "section"}, "missing required field: text [json-pointer:/blocks/0]"),
    ({"type": "section", "text": "bare"}, "must provide an object [json-pointer:/blocks/0/text]"),
    (section(text=plain("")), "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
    (section(colour="red"), "invalid additional property: colour [json-pointer:/blocks/0]"),
    (
        {"type": "header", "text": {"type": "mrkdwn", "text": "x"}},
        "unsupported text type: mrkdwn [json-pointer:/blocks/0/text/type]",
    ),
    (
        actions(button(text={"type": "mrkdwn", "text": "x"})),
        "unsupported text type: mrkdwn [json-pointer:/blocks/0/elements/0/text/type]",
    ),
    (actions(button(style="loud")), "must be one of primary, danger [json-pointer:/blocks/0/elements/0/style]"),
    (actions(button(url="javascript:x")), "must be a valid URL [json-pointer:/blocks/0/elements/0/url]"),
    (actions(), "must contain at least 1 item [json-pointer:/blocks/0/elements]"),
    (
        actions({"type": "feedback_buttons"}),
        "unsupported element type: feedback_buttons [json-pointer:/blocks/0/elements/0/type]",
    ),
    (
        actions(button(action_id="a"), button(action_id="a")),
        "action_id already exists: a [json-pointer:/blocks/0/elements/1/action_id]",
    ),
    (
        rich(type="shout", text="x"),
        "unsupported rich text element type: shout [json-pointer:/blocks/0/elements/0/elements/0/type]",
    ),
    (rich(type="text", text=""), "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]"),
    (table(1, 1, ""), "must be more than 0 characters [json-pointer:/blocks/0/rows/0/0/text]"),
]


async def wrong_with(client: AsyncWebClient, channel: Channel, *blocks: Json) -> list[str]:
    """Return Slack's messages about the blocks of a message."""
    response = await refusal(client.chat_postMessage(channel=channel.id, text="x", blocks=list(blocks)))
    assert response["error"] == "invalid_blocks"
    return [line.removeprefix("[ERROR] ") for line in response["response_metadata"]["messages"]]


@pytest.mark.parametrize(("within", "beyond", "message"), BLOCK_LIMITS, ids=[line for *_, line in BLOCK_LIMITS])
async def test_a_block_beyond_a_limit_is_rejected(
    client: AsyncWebClient, channel: Channel, within: Json, beyond: Json, message: str
) -> None:
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[within])
    assert await wrong_with(client, channel, beyond) == [message]


@pytest.mark.parametrize(("block", "message"), NOT_BLOCK_KIT, ids=[line for _, line in NOT_BLOCK_KIT])
async def test_a_malformed_block_is_rejected(
    client: AsyncWebClient, channel: Channel, block: Json, message: str
) -> None:
    assert message in await wrong_with(client, channel, block)


async def test_the_blocks_of_a_message_have_limits_together(client: AsyncWebClient, channel: Channel) -> None:
    same_id = await wrong_with(client, channel, section(block_id="a"), section(block_id="a"))
    assert same_id == ["block_id already exists: a [json-pointer:/blocks/1/block_id]"]
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[section()] * 50)
    too_many = await wrong_with(client, channel, *[section()] * 51)
    assert too_many == ["no more than 50 items allowed [json-pointer:/blocks]"]
    half = {"type": "markdown", "text": "x" * 6000}
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[half, half])
    assert "together" in (await wrong_with(client, channel, half, half, {"type": "markdown", "text": "x"}))[0]
    tables = client.chat_postMessage(channel=channel.id, text="x", blocks=[table(1, 1), table(1, 1)])
    assert await code(tables) == "invalid_attachments"


async def test_the_blocks_of_a_message_have_a_weight_together(client: AsyncWebClient, channel: Channel) -> None:
    def blocks(last: str) -> list[Json]:
        return [section(text={"type": "mrkdwn", "text": text}) for text in (*["x" * 3_000] * 4, last)]

    ts = (await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks("x" * 700)))["ts"]
    for heavy in ("x" * 701, "&" * 141):
        posted = client.chat_postMessage(channel=channel.id, text="x", blocks=blocks(heavy))
        assert await code(posted) == "msg_blocks_too_long"
        updated = client.chat_update(channel=channel.id, ts=ts, text="x", blocks=blocks(heavy))
        assert await code(updated) == "msg_blocks_too_long"


# Views


def modal(*blocks: Json, **more: Any) -> Json:
    return {"type": "modal", "title": plain("Add"), "blocks": list(blocks) or [section()], **more}


def field(**more: Any) -> Json:
    return {"type": "input", "label": plain("Name"), "element": {"type": "plain_text_input"}, **more}


def home(**more: Any) -> Json:
    return {"type": "home", "blocks": [section()], **more}


VIEW_TEXTS: list[tuple[str, int, Callable[[str], Json]]] = [
    ("title/text", 24, lambda text: modal(title=plain(text))),
    ("submit/text", 24, lambda text: modal(submit=plain(text))),
    ("close/text", 24, lambda text: modal(close=plain(text))),
    ("private_metadata", 3000, lambda text: modal(private_metadata=text)),
    ("callback_id", 255, lambda text: modal(callback_id=text)),
    ("blocks/0/hint/text", 2000, lambda text: modal(field(hint=plain(text)), submit=plain("Add"))),
    (
        "blocks/0/element/initial_value",
        3000,
        lambda text: modal(field(element={"type": "plain_text_input", "initial_value": text}), submit=plain("Add")),
    ),
]
VIEW_LIMITS: list[tuple[Json, Json, str]] = [
    *(
        (make("x" * most), make("x" * (most + 1)), f"must be less than {most + 1} characters [json-pointer:/view/{at}]")
        for at, most, make in VIEW_TEXTS
    ),
    (
        modal(*[section()] * 100),
        modal(*[section()] * 101),
        "no more than 100 items allowed [json-pointer:/view/blocks]",
    ),
    (
        modal(field(), submit=plain("Add")),
        modal(field()),
        "missing required field: submit [json-pointer:/view]",
    ),
    *(
        (
            modal(),
            modal(block),
            f"unsupported block type on this surface: {block['type']} [json-pointer:/view/blocks/0/type]",
        )
        for block in ({"type": "markdown", "text": "x"}, table(1, 1))
    ),
    (modal(), home(), "unsupported view type: home [json-pointer:/view/type]"),
]


@pytest.mark.parametrize(("within", "beyond", "message"), VIEW_LIMITS, ids=[line for *_, line in VIEW_LIMITS])
async def test_a_view_beyond_a_limit_is_rejected_and_its_trigger_stays_usable(
    slack: FakeSlack, client: AsyncWebClient, within: Json, beyond: Json, message: str
) -> None:
    trigger = slack.trigger(slack.user("Priya"))
    response = await refusal(client.views_open(trigger_id=trigger, view=beyond))
    assert response["error"] == "invalid_arguments"
    assert response["response_metadata"]["messages"] == [f"[ERROR] {message}"]
    await client.views_open(trigger_id=trigger, view=within)


async def test_a_home_has_no_title_and_a_view_a_size(slack: FakeSlack, client: AsyncWebClient, priya: User) -> None:
    titled = await refusal(client.views_publish(user_id=priya.id, view=home(title=plain("x"))))
    assert titled["response_metadata"]["messages"] == [
        "[ERROR] invalid additional property: title [json-pointer:/view]"
    ]
    large = modal(*[section(text={"type": "mrkdwn", "text": "x" * 2900})] * 90)
    assert await code(client.views_open(trigger_id=slack.trigger(priya), view=large)) == "view_too_large"


async def test_a_trigger_opens_one_modal_within_three_seconds(
    slack: FakeSlack, client: AsyncWebClient, priya: User
) -> None:
    first, second = slack.trigger(priya), slack.trigger(priya)
    await client.views_open(trigger_id=first, view=modal())
    assert await code(client.views_open(trigger_id=first, view=modal())) == "exchanged_trigger_id"
    slack.clock.advance(3.1)
    assert await code(client.views_open(trigger_id=second, view=modal())) == "expired_trigger_id"
    assert await code(client.views_open(trigger_id="1.2.3", view=modal())) == "invalid_trigger_id"


async def test_three_views_are_stacked_from_inside_a_modal(
    slack: FakeSlack, client: AsyncWebClient, priya: User
) -> None:
    await client.views_open(trigger_id=slack.trigger(priya), view=modal())
    assert await code(client.views_push(trigger_id=slack.trigger(priya), view=modal())) == "not_found"
    for _ in range(2):
        await client.views_push(trigger_id=slack.trigger(priya, slack.modal(priya).id), view=modal())
    fourth = client.views_push(trigger_id=slack.trigger(priya, slack.modal(priya).id), view=modal())
    assert await code(fourth) == "push_limit_reached"


async def test_a_view_is_updated_with_its_newest_hash(slack: FakeSlack, client: AsyncWebClient, priya: User) -> None:
    sam = slack.user("Sam")
    view = (await client.views_open(trigger_id=slack.trigger(priya), view=modal(external_id="add")))["view"]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=modal(external_id="add"))
    late = client.views_update(view_id=view["id"], hash=view["hash"], view=modal())
    assert await code(late) == "hash_conflict"
    twice = client.views_open(trigger_id=slack.trigger(sam), view=modal(external_id="add"))
    assert await code(twice) == "duplicate_external_id"
    assert await code(client.views_update(view_id="V404", view=modal())) == "not_found"
    published = (await client.views_publish(user_id=priya.id, view=home()))["view"]
    await client.views_publish(user_id=priya.id, view=home(), hash=published["hash"])
    old = client.views_publish(user_id=priya.id, view=home(), hash=published["hash"])
    assert await code(old) == "hash_conflict"
    assert await code(client.views_publish(user_id="U404", view=home())) == "user_not_found"


# Messages


async def test_a_channel_that_cannot_be_posted_to_is_rejected(slack: FakeSlack, client: AsyncWebClient) -> None:
    away, private = slack.channel("away", with_bot=False), slack.channel("secret", kind="group", with_bot=False)
    archived, closed, incidents = slack.channel("old"), slack.channel("closed"), slack.channel("incidents")
    archived.archived, closed.posting_restricted = True, True

    async def posting_error(channel: str, **more: str) -> str:
        return await code(client.chat_postMessage(channel=channel, text="Hello", **more))  # type: ignore[arg-type]

    assert await posting_error("C404") == "channel_not_found"
    assert await posting_error(private.id) == "channel_not_found"
    assert await posting_error(away.id) == "not_in_channel"
    assert await posting_error(archived.id) == "is_archived"
    assert await posting_error(closed.id) == "restricted_action"
    assert await posting_error(incidents.id, thread_ts="1.000001") == "thread_not_found"
    assert await posting_error(incidents.id, username="Boss") == "missing_scope"
    assert await code(client.conversations_history(channel=away.id)) == "not_in_channel"
    assert await code(client.conversations_info(channel=private.id)) == "channel_not_found"


@pytest.mark.filterwarnings("ignore:The top-level `text` argument is missing")
async def test_the_text_of_a_message_has_one_form_and_a_length(client: AsyncWebClient, channel: Channel) -> None:
    async def posting_error(**content: Any) -> str:
        return await code(client.chat_postMessage(channel=channel.id, **content))

    assert await posting_error(text="") == "no_text"
    assert await posting_error(text="", blocks=[]) == "no_text"
    assert await posting_error(text="a", markdown_text="b") == "markdown_text_conflict"
    assert await posting_error(markdown_text="x" * 12_001) == "msg_too_long"
    assert await posting_error(text="a", blocks="{oops") == "invalid_blocks_format"
    assert await posting_error(text="a", metadata={"event_payload": {}}) == "invalid_metadata_schema"
    large = {"event_type": "turn", "event_payload": {"id": "x" * 16_000}}
    assert await posting_error(text="a", metadata=large) == "metadata_too_large"
    await client.chat_postMessage(channel=channel.id, markdown_text="x" * 12_000)
    cut = await client.chat_postMessage(channel=channel.id, text="x" * 40_001)
    assert len(cut["message"]["text"]) == 40_000


async def test_an_update_changes_an_own_message_within_four_thousand_bytes(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel, priya: User
) -> None:
    foreign = slack.say(priya, channel, "mine")
    ts = (await client.chat_postMessage(channel=channel.id, text="Hello"))["ts"]
    await client.chat_update(channel=channel.id, ts=ts, text="x" * 4_000)
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="x" * 4_001)) == "msg_too_long"
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="é" * 2_001)) == "msg_too_long"
    assert await code(client.chat_update(channel=channel.id, ts=foreign.ts, text="x")) == "cant_update_message"
    assert await code(client.chat_delete(channel=channel.id, ts=foreign.ts)) == "cant_delete_message"
    await client.chat_delete(channel=channel.id, ts=ts)
    assert await code(client.chat_delete(channel=channel.id, ts=ts)) == "message_not_found"
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="x")) == "message_not_found"


async def test_an_ephemeral_message_is_visible_to_one_member_and_cannot_be_changed(
    slack: FakeSlack, client: AsyncWebClient, priya: User
) -> None:
    sam, lee = slack.user("Sam"), slack.user("Lee")
    channel = slack.channel("incidents", priya, sam)
    ts = (await client.chat_postEphemeral(channel=channel.id, user=sam.id, text="Only you"))["message_ts"]
    assert [sight.words for sight in slack.what_user_sees(sam, channel)] == ["Only you"]
    assert slack.what_user_sees(priya, channel) == []
    assert await code(client.chat_update(channel=channel.id, ts=ts, text="x")) == "message_not_found"
    assert await code(client.chat_postEphemeral(channel=channel.id, user=lee.id, text="x")) == "user_not_in_channel"
    root = slack.say(priya, channel, "first")
    await client.chat_postEphemeral(channel=channel.id, user=sam.id, text="no thread yet", thread_ts=root.ts)
    assert [sight.words for sight in slack.what_user_sees(sam, channel)] == ["Only you", "first"]


async def test_a_button_for_some_users_is_hidden_from_the_others(
    slack: FakeSlack, client: AsyncWebClient, priya: User
) -> None:
    sam = slack.user("Sam")
    channel = slack.channel("incidents", priya, sam)
    blocks = [actions(button(visible_to_user_ids=[sam.id]))]
    await client.chat_postMessage(channel=channel.id, text="card", blocks=blocks)
    assert [slack.what_user_sees(user, channel)[0].words for user in (priya, sam)] == ["", "Go"]
    with pytest.raises(LookupError, match="nothing called 'Go'"):
        await slack.press(priya, slack.bot_messages(channel)[-1], "Go")


async def test_a_reaction_is_added_once_and_removed_once(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel, priya: User
) -> None:
    target = {"channel": channel.id, "timestamp": slack.say(priya, channel, "look").ts}
    await client.reactions_add(name="eyes", **target)
    assert await code(client.reactions_add(name="eyes", **target)) == "already_reacted"
    assert await code(client.reactions_add(name=":eyes:", **target)) == "invalid_name"
    await client.reactions_remove(name="eyes", **target)
    assert await code(client.reactions_remove(name="eyes", **target)) == "no_reaction"


# Streams


async def start_stream(client: AsyncWebClient, place: Channel, question: Message, **more: Any) -> str:
    return str((await client.chat_startStream(channel=place.id, thread_ts=question.ts, **more))["ts"])


async def test_a_stream_starts_on_a_message_and_in_a_channel_with_a_recipient(
    slack: FakeSlack, client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    assert await code(client.chat_startStream(channel=direct.id, thread_ts="")) == "invalid_arguments"
    assert await code(client.chat_startStream(channel=direct.id, thread_ts="1.000001")) == "thread_not_found"
    assert await code(start_stream(client, direct, question, task_display_mode="loud")) == "invalid_arguments"
    direct.streams = False
    assert await code(start_stream(client, direct, question)) == "channel_type_not_supported"
    lee = slack.user("Lee")
    channel = slack.channel("incidents", lee)
    asked = slack.say(lee, channel, "why?")
    assert await code(start_stream(client, channel, asked)) == "missing_recipient_user_id"
    assert await code(start_stream(client, channel, asked, recipient_user_id=lee.id)) == "missing_recipient_team_id"


async def test_a_stream_ends_five_minutes_after_its_start(
    slack: FakeSlack, client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    ts = await start_stream(client, direct, question, markdown_text="a")
    slack.clock.advance(290)
    await client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="b")
    assert await code(client.chat_update(channel=direct.id, ts=ts, text="x")) == "streaming_state_conflict"
    slack.clock.advance(10)
    late = client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="c")
    assert await code(late) == "message_not_in_streaming_state"
    assert await code(client.chat_stopStream(channel=direct.id, ts=ts)) == "message_not_in_streaming_state"
    await client.chat_update(channel=direct.id, ts=ts, text="whole")
    foreign = client.chat_appendStream(channel=direct.id, ts=question.ts, markdown_text="b")
    assert await code(foreign) == "message_not_owned_by_app"


async def test_a_stream_with_tasks_is_full_at_its_size_and_one_of_text_later(
    client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    card = TaskUpdateChunk(id="t", title="t", status="complete")
    ts = await start_stream(client, direct, question, chunks=[card, MarkdownTextChunk(text="é" * 5_400)])
    full = client.chat_appendStream(channel=direct.id, ts=ts, chunks=[MarkdownTextChunk(text="é" * 100)])
    assert await code(full) == "msg_too_long"
    await client.chat_appendStream(channel=direct.id, ts=ts, chunks=[MarkdownTextChunk(text="e" * 100)])

    ts = await start_stream(client, direct, question, markdown_text="x" * 12_000)
    long = client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="x" * 12_001)
    assert await code(long) == "msg_too_long"
    for _ in range(2):
        await client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="x" * 12_000)
    last = client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="x" * 3_001)
    assert await code(last) == "msg_too_long"
    await client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="x" * 3_000)


async def test_a_stream_keeps_the_form_that_it_began_with(
    client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    chunk = MarkdownTextChunk(text="b")
    ts = await start_stream(client, direct, question, markdown_text="a")
    both = client.chat_appendStream(channel=direct.id, ts=ts, markdown_text="b", chunks=[chunk])
    assert await code(both) == "cannot_provide_both_markdown_text_and_chunks"
    assert await code(client.chat_appendStream(channel=direct.id, ts=ts, chunks=[chunk])) == "streaming_mode_mismatch"
    assert await code(client.chat_appendStream(channel=direct.id, ts=ts)) == "no_text"
    odd = client.chat_stopStream(channel=direct.id, ts=ts, session_status="asleep")
    assert await code(odd) == "invalid_arguments"


async def test_the_chunks_of_a_stream_have_limits(client: AsyncWebClient, direct: Channel, question: Message) -> None:
    ts = await start_stream(client, direct, question)

    async def appending_error(*chunks: object) -> str:
        return await code(client.chat_appendStream(channel=direct.id, ts=ts, chunks=list(chunks)))  # type: ignore[arg-type]

    update = {"type": "task_update", "id": "t", "title": "t", "status": "complete"}
    for name in ("title", "details", "output"):
        await client.chat_appendStream(channel=direct.id, ts=ts, chunks=[{**update, "id": name, name: "x" * 256}])
        assert await appending_error({**update, "id": name, name: "x" * 257}) == "invalid_chunks"
    assert await appending_error({**update, "status": "done"}) == "invalid_chunks"
    assert await appending_error({"type": "plan_update", "title": "x" * 257}) == "invalid_chunks"
    assert await appending_error({"type": "markdown_text", "text": "x" * 12_001}) == "invalid_chunks"
    assert await appending_error({"type": "shout"}) == "invalid_chunks"
    assert await appending_error(BlocksChunk(blocks=[{"type": "banner"}])) == "invalid_chunks"
    assert await appending_error(BlocksChunk(blocks=[section()] * 51)) == "msg_blocks_too_many"
    await client.chat_appendStream(channel=direct.id, ts=ts, chunks=[BlocksChunk(blocks=[section()] * 50)])
    assert await appending_error(BlocksChunk(blocks=[section()])) == "msg_blocks_too_many"
    too_many = client.chat_stopStream(channel=direct.id, ts=ts, blocks=[section()] * 51)
    assert await code(too_many) == "invalid_blocks"
    await client.chat_stopStream(channel=direct.id, ts=ts, blocks=[section()] * 50)


async def test_the_status_and_the_session_of_a_thread_have_limits(
    slack: FakeSlack, client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    target: Json = {"channel_id": direct.id, "thread_ts": question.ts}
    await client.assistant_threads_setStatus(status="is thinking", loading_messages=["…"] * 10, **target)
    assert slack.status(direct, question.ts) == "is thinking"
    slack.clock.advance(121)
    assert slack.status(direct, question.ts) == ""
    many = client.assistant_threads_setStatus(status="x", loading_messages=["…"] * 11, **target)
    assert await code(many) == "invalid_arguments"
    prompts = [{"title": "t", "message": "m"}] * 5
    five = client.assistant_threads_setSuggestedPrompts(channel_id=direct.id, prompts=prompts)
    assert await code(five) == "invalid_arguments"
    assert await code(client.agents_sessions_rename(title="x" * 201, **target)) == "invalid_arguments"
    assert await code(client.agents_sessions_setStatus(status="asleep", **target)) == "invalid_arguments"
    slack.app.agent = False
    assert await code(client.agents_sessions_setStatus(status="active", **target)) == "not_authorized"


# Users, conversations and files


async def test_an_unknown_user_group_cursor_or_thread_is_rejected(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel
) -> None:
    assert await code(client.users_info(user="U404")) == "user_not_found"
    assert await code(client.users_conversations(limit=1001)) == "invalid_limit"
    assert await code(client.users_conversations(cursor="?")) == "invalid_cursor"
    assert await code(client.conversations_replies(channel=channel.id, ts="1.000001")) == "thread_not_found"
    assert await code(client.conversations_open(users="U404")) == "user_not_found"
    assert await code(client.conversations_open(users=slack.bot.id)) == "cannot_dm_self"
    assert await code(client.conversations_open(users=slack.other_bot("Robo").id)) == "cannot_dm_bot"


async def test_an_upload_is_requested_sent_in_full_and_completed_once(
    client: AsyncWebClient, session: ClientSession, channel: Channel
) -> None:
    assert await code(client.files_getUploadURLExternal(filename="a.txt", length=0)) == "invalid_arguments"
    target = await client.files_getUploadURLExternal(filename="a.txt", length=4)
    files = [{"id": target["file_id"]}]
    early = client.files_completeUploadExternal(files=files, channel_id=channel.id)
    assert await code(early) == "file_update_failed"
    for content, status in ((b"too long", 400), (b"line", 200)):
        async with session.post(target["upload_url"], data=content) as response:
            assert response.status == status
    await client.files_completeUploadExternal(files=files, channel_id=channel.id)
    again = client.files_completeUploadExternal(files=files, channel_id=channel.id)
    assert await code(again) == "file_not_found"


async def test_a_file_is_downloaded_with_the_token_and_its_scope(
    slack: FakeSlack, session: ClientSession, direct: Channel, priya: User
) -> None:
    url = slack.say(priya, direct, "look", files=[("a.png", b"\x89PNG")]).files[0].url
    head = {"Authorization": f"Bearer {slack.bot_token}"}
    for headers, scope, content_type in (
        (head, True, "image/png"),
        ({}, True, "text/html"),
        (head, False, "text/html"),
    ):
        if not scope:
            slack.installation.scopes.discard("files:read")
        async with session.get(url, headers=headers) as response:
            assert (response.status, response.content_type) == (200, content_type)


# Calls


async def test_a_token_must_be_present_known_valid_and_of_the_right_type(
    slack: FakeSlack, session: ClientSession
) -> None:
    def using(token: str | None) -> AsyncWebClient:
        return AsyncWebClient(token=token, base_url=slack.url, session=session, retry_handlers=[])

    assert await code(using(None).auth_test()) == "not_authed"
    assert await code(using("xoxb-other").auth_test()) == "invalid_auth"
    app = using(slack.app.app_token)
    assert await code(app.chat_postMessage(channel="C1", text="x")) == "not_allowed_token_type"
    assert await code(app.apps_connections_open(app_token=slack.bot_token)) == "not_allowed_token_type"
    other = slack.install(Team("T0OTHER", "Other", "other"))
    posted = using(other.token).chat_postMessage(channel=slack.channel("incidents").id, text="x")
    assert await code(posted) == "channel_not_found"
    slack.installation.revoked = True
    assert await code(using(slack.bot_token).auth_test()) == "token_revoked"


async def test_a_missing_scope_is_named_with_the_scopes_of_the_token(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel, priya: User
) -> None:
    slack.installation.scopes.clear()
    slack.installation.scopes |= {"chat:write", "im:history"}
    needed = {"error": "missing_scope", "needed": "users:read", "provided": "chat:write,im:history"}
    assert await refusal(client.users_info(user=slack.bot.id)) == {"ok": False, **needed}
    assert (await refusal(client.conversations_history(channel=channel.id)))["needed"] == "channels:history"
    assert await code(client.conversations_open(users=priya.id)) == "missing_scope"


async def test_an_unknown_method_argument_or_content_type_is_rejected(
    slack: FakeSlack, client: AsyncWebClient, session: ClientSession, channel: Channel
) -> None:
    assert await code(client.api_call("chat.shout")) == "unknown_method"
    assert await code(client.api_call("users.info", json={"user": slack.bot.id})) == "user_not_found"
    unknown = await refusal(client.chat_postMessage(channel=channel.id, text="a", client_msg_id="u1"))
    assert unknown["error"] == "invalid_arguments"
    assert unknown["response_metadata"]["messages"] == ["[ERROR] unknown argument: client_msg_id"]
    for body, content_type, error in (
        ("{oops", "application/json", "invalid_json"),
        ("[]", "application/json", "json_not_object"),
        ("hello", "text/plain", "invalid_post_type"),
    ):
        head = {"Authorization": f"Bearer {slack.bot_token}", "Content-Type": content_type}
        async with session.post(f"{slack.url}chat.postMessage", data=body, headers=head) as response:
            assert await response.json() == {"ok": False, "error": error}


async def test_posts_to_a_channel_are_limited_to_a_short_burst_and_then_one_a_second(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel
) -> None:
    slack.pace.strict = True
    slack.clock.stop()
    for _ in range(5):
        await client.chat_postMessage(channel=channel.id, text="x")
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=channel.id, text="x")
    assert (caught.value.response.status_code, caught.value.response["error"]) == (429, "ratelimited")
    assert caught.value.response.headers["Retry-After"] == "1"
    await client.chat_postMessage(channel=slack.channel("other").id, text="x")
    slack.clock.advance(1)
    await client.chat_postMessage(channel=channel.id, text="x")
    assert await code(client.chat_postMessage(channel=channel.id, text="x")) == "ratelimited"


@pytest.mark.parametrize(
    ("most", "methods"),
    [
        (20, ("usergroups.list", "reactions.remove", "chat.startStream", "chat.stopStream")),
        (50, ("chat.update", "chat.delete", "conversations.replies", "reactions.add", "agents.sessions.setStatus")),
        (100, ("users.info", "chat.appendStream", "chat.postEphemeral", "views.publish")),
    ],
)
def test_a_method_is_limited_per_minute_and_workspace(slack: FakeSlack, most: int, methods: tuple[str, ...]) -> None:
    slack.pace.strict = True
    slack.clock.stop()
    for method in methods:
        tier = METHODS[method].tier
        assert [slack.pace.wait_for("T1", method, tier) for _ in range(most + 1)] == [0] * most + [60]
        assert slack.pace.wait_for("T2", method, tier) == 0


async def test_a_response_url_is_good_for_five_messages_in_half_an_hour(
    slack: FakeSlack, session: ClientSession, direct: Channel, priya: User
) -> None:
    slack.post.retries = ()

    async def respond(url: str, **body: Any) -> tuple[int, str]:
        response = await AsyncWebhookClient(url, session=session).send_dict(body)
        return response.status_code, response.body

    slack.post.within = 0.05
    url = str((await slack.command(priya, "/mcp", "list", direct)).payload["response_url"])
    assert await respond(url, text="") == (400, "no_text")
    assert await respond(url, text="x", blocks=[{"type": "banner"}]) == (400, "invalid_blocks")
    assert await respond(url, text="x", colour="red") == (400, "unknown argument: colour")
    for _ in range(5):
        assert await respond(url, text="x") == (200, "ok")
    assert await respond(url, text="6") == (404, "used_url")
    url = str((await slack.command(priya, "/mcp", "list", direct)).payload["response_url"])
    slack.clock.advance(1801)
    assert await respond(url, text="late") == (404, "expired_url")


# Actions that Slack's own clients do not allow


async def test_a_user_cannot_use_a_control_that_is_not_offered(
    slack: FakeSlack, client: AsyncWebClient, priya: User, direct: Channel
) -> None:
    with pytest.raises(LookupError, match="/shout is not a valid command"):
        await slack.command(priya, "/shout", "", direct)
    with pytest.raises(LookupError, match="there is no shortcut shout"):
        await slack.shortcut(priya, "shout")
    menu = {"type": "static_select", "action_id": "pick", "options": options(1)}
    await client.chat_postMessage(channel=direct.id, text="card", blocks=[actions(menu)])
    with pytest.raises(LookupError, match="no option 'o1'"):
        await slack.choose(priya, slack.bot_messages(direct)[-1], "pick", "o1")
    await client.views_open(trigger_id=slack.trigger(priya), view=modal(field(), submit=plain("Add")))
    with pytest.raises(LookupError, match="please complete this required field: Name"):
        await slack.submit(priya)


async def test_an_error_of_the_fake_itself_fails_the_test(session: ClientSession) -> None:
    with pytest.raises(KeyError, match="T404"):  # noqa: PT012 - leaving the workspace raises
        async with FakeSlack() as slack:
            slack.installation.team = Team("T404", "Lost", "lost")
            client = AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=[])
            with pytest.raises(SlackApiError):
                await client.users_info(user="U1")


# Mentions and link previews


@pytest.mark.parametrize(
    ("content", "called"),
    [
        ({"text": "<!channel> and <!here|here>"}, {"channel", "here"}),
        ({"text": "<@U1> <@W2|sam> <!subteam^S3|@ops>"}, {"U1", "W2", "S3"}),
        ({"text": "&lt;!channel&gt; @channel <https://a|b>"}, set()),
        ({"text": "@everyone", "link_names": True}, {"everyone"}),
        ({"text": "@here", "parse": "full"}, {"here"}),
        ({"text": "x", "blocks": [section(text={"type": "mrkdwn", "text": "<!everyone>"})]}, {"everyone"}),
        ({"text": "x", "blocks": [section(text=plain("<!everyone>"))]}, set()),
        ({"text": "x", "blocks": [{"type": "markdown", "text": "<!channel>"}]}, {"channel"}),
        ({"text": "x", "blocks": [rich(type="user", user_id="U1")]}, {"U1"}),
        ({"text": "x", "blocks": [rich(type="usergroup", usergroup_id="S1")]}, {"S1"}),
        ({"text": "x", "blocks": [rich(type="broadcast", range="here")]}, {"here"}),
        ({"text": "x", "blocks": [rich(type="text", text="<!channel>")]}, set()),
        ({"markdown_text": "<!channel>"}, {"channel"}),
    ],
)
async def test_every_mention_in_a_message_is_reported(
    slack: FakeSlack, client: AsyncWebClient, channel: Channel, content: Json, called: set[str]
) -> None:
    await client.chat_postMessage(channel=channel.id, **content)
    assert slack.notified_ids(slack.bot_messages(channel)[0]) == called


async def test_every_mention_in_a_stream_and_an_update_is_reported(
    slack: FakeSlack, client: AsyncWebClient, direct: Channel, question: Message
) -> None:
    update = {"type": "task_update", "id": "t", "title": "<!here>", "status": "complete"}
    ts = await start_stream(client, direct, question, chunks=[update])
    assert slack.notified_ids(slack.bot_messages(direct)[0]) == {"here"}
    await client.chat_stopStream(channel=direct.id, ts=ts)
    await client.chat_update(channel=direct.id, ts=ts, text="<!channel>")
    assert slack.notified_ids(slack.bot_messages(direct)[0]) == {"channel"}


async def test_every_link_preview_is_reported(slack: FakeSlack, client: AsyncWebClient, channel: Channel) -> None:
    link = "https://evil.example/?q=secret"
    blocks = [section(text={"type": "mrkdwn", "text": f"see <{link}|this>"})]
    for more in ({}, {"unfurl_links": False}, {"unfurl_links": False, "unfurl_media": False}):
        await client.chat_postMessage(channel=channel.id, text="x", blocks=blocks, **more)  # type: ignore[arg-type]
    await client.chat_postMessage(channel=channel.id, text="x", blocks=[rich(type="link", url=link)])
    assert [slack.fetched_addresses(message) for message in slack.bot_messages(channel)] == [
        {link},
        {link},
        set(),
        {link},
    ]


async def test_a_code_becomes_a_token_once_for_the_app_that_asked_and_where_it_asked(
    slack: FakeSlack, session: ClientSession
) -> None:
    back = "https://bot.example.com/back"
    slack.oauth.redirect_uris.add(back)
    asked = f"{slack.url.removesuffix('/api/')}/oauth/v2/authorize?client_id={slack.app.client_id}&scope=chat:write"
    user = slack.user("Ana")

    async def access(code: str, uri: str = back, secret: str = slack.app.client_secret) -> Any:
        given = {"code": code, "redirect_uri": uri}
        auth = b64encode(f"{slack.app.client_id}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {auth}"}
        async with session.post(f"{slack.url}oauth.v2.access", data=given, headers=headers) as response:
            answer = await response.json()
        return answer.get("error") or answer

    def code() -> str:
        return slack.oauth.consent(f"{asked}&redirect_uri={back}&state=s", user).partition("code=")[2].partition("&")[0]

    assert await access(code(), secret="another") == "bad_client_secret"
    assert await access(code(), uri="https://elsewhere.example.com") == "bad_redirect_uri"
    slack.app.rotation = True
    first = code()
    answer = await access(first)
    assert (answer["token_type"], answer["scope"], answer["expires_in"]) == ("bot", "chat:write", 43_200)
    assert await access(first) == "invalid_code"
    late = code()
    slack.clock.advance(601)
    assert await access(late) == "invalid_code"
    client = AsyncWebClient(token=answer["access_token"], base_url=slack.url, session=session, retry_handlers=[])
    assert (await client.auth_test())["team_id"] == slack.workspace.team.id
    slack.clock.advance(43_200)
    assert (await _code_of(client.auth_test())) == "token_expired"
    with pytest.raises(AssertionError, match="bad_redirect_uri"):
        slack.oauth.consent(f"{asked}&redirect_uri=https://elsewhere.example.com&state=s", user)


async def _code_of(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as refusal:
        await call
    return str(refusal.value.response["error"])
