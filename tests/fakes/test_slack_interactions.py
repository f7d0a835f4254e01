"""What people do with buttons, modals, commands and shortcuts, through the real Bolt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from tests.fakes.slack import Channel, FakeSlack, Message, User
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack_bolt_app import BoltApp, by_socket, modal

Json = dict[str, Any]


@pytest.fixture
async def bolt(slack: FakeSlack, session: ClientSession) -> AsyncIterator[BoltApp]:
    app = BoltApp(slack, session)
    async with by_socket(slack, app):
        yield app


@pytest.fixture
def priya(slack: FakeSlack) -> User:
    return slack.user("Priya")


@pytest.fixture
def place(slack: FakeSlack, priya: User) -> Channel:
    return slack.channel("incidents", priya)


def button(text: str, action_id: str, **more: Any) -> Json:
    return {"type": "button", "text": {"type": "plain_text", "text": text}, "action_id": action_id, **more}


def picks(*elements: Json) -> list[Json]:
    return [{"type": "actions", "block_id": "row", "elements": list(elements)}]


async def posted(slack: FakeSlack, client: AsyncWebClient, place: Channel, *elements: Json) -> Message:
    await client.chat_postMessage(channel=place.id, text="card", blocks=picks(*elements))
    return slack.posted(place)[-1]


async def opened(slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel) -> None:
    """Press a button that opens the app's modal."""
    await slack.press(priya, await posted(slack, client, place, button("Open", "open")), "Open")
    await slack.until(lambda: slack.modals(priya))


async def test_a_press_tells_who_where_what_and_how_to_answer(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    card = await posted(slack, client, place, button("Go", "respond", value="apr_1"))
    delivery = await slack.press(priya, card, "Go")
    assert delivery.acknowledged
    await slack.until(lambda: card.text == "Done")
    body = next(body for kind, body in bolt.heard if kind == "respond")
    assert body["actions"][0] | {"action_ts": ""} == {
        "action_id": "respond",
        "block_id": "row",
        "type": "button",
        "text": {"type": "plain_text", "text": "Go"},
        "value": "apr_1",
        "action_ts": "",
    }
    assert (body["user"]["id"], body["channel"]["id"]) == (priya.id, place.id)
    assert (body["container"]["message_ts"], body["message"]["ts"]) == (card.ts, card.ts)
    assert slack.what_user_sees(priya, place)[-1].words == "Done"


async def test_a_press_on_an_ephemeral_message_carries_no_message(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await client.chat_postEphemeral(channel=place.id, user=priya.id, text="psst", blocks=picks(button("Go", "respond")))
    card = slack.posted(place)[-1]
    await slack.press(priya, card, "Go")
    await slack.until(lambda: card.text == "Done")
    body = next(body for kind, body in bolt.heard if kind == "respond")
    assert body["container"]["is_ephemeral"]
    assert "message" not in body


async def test_one_can_press_what_was_on_an_old_screen_and_not_what_is_hidden_or_absent(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    card = await posted(slack, client, place, button("Old", "pick"))
    hidden = button("New", "pick", visible_to_user_ids=["U404"])
    await client.chat_update(channel=place.id, ts=card.ts, text="card", blocks=picks(hidden))
    with pytest.raises(LookupError, match="nothing called 'Old'"):
        await slack.press(priya, card, "Old")
    with pytest.raises(LookupError, match="nothing called 'New'"):
        await slack.press(priya, card, "New")
    await slack.press(priya, card, "Old", as_of=card.past[0])
    await slack.press(priya, card, "New", hidden=True)
    pressed = [body["actions"][0]["text"]["text"] for _, body in bolt.heard if body["type"] == "block_actions"]
    assert pressed == ["Old", "New"]


async def test_what_is_chosen_in_a_message_is_in_its_state_at_the_next_press(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    kinds = [{"text": {"type": "plain_text", "text": name}, "value": name.lower()} for name in ("One", "Two", "Three")]
    boxes = {"type": "checkboxes", "action_id": "pick", "options": kinds, "initial_options": kinds[:1]}
    card = await posted(slack, client, place, boxes, button("Go", "note"))
    await slack.choose(priya, card, "pick", "One", "three")
    await slack.press(priya, card, "Go")
    states = [body["state"]["values"]["row"]["pick"]["selected_options"] for _, body in bolt.heard if "state" in body]
    assert [[option["value"] for option in chosen] for chosen in states] == [["one", "three"]] * 2
    with pytest.raises(LookupError, match="no option 'four'"):
        await slack.choose(priya, card, "pick", "four")


async def test_feedback_is_one_of_two_buttons(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    up, down = ({"text": {"type": "plain_text", "text": text}, "value": text} for text in ("good", "bad"))
    buttons = {"type": "feedback_buttons", "action_id": "pick", "positive_button": up, "negative_button": down}
    await client.chat_postMessage(
        channel=place.id, text="answer", blocks=[{"type": "context_actions", "elements": [buttons]}]
    )
    await slack.press(priya, slack.posted(place)[-1], "bad")
    await slack.until(lambda: bolt.heard and bolt.heard[-1][0] == "block_actions")
    assert bolt.heard[-1][1]["actions"][0]["value"] == "bad"


# Modals


async def test_a_modal_is_filled_in_submitted_and_closed(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await opened(slack, bolt, client, priya, place)
    with pytest.raises(LookupError, match="please complete this required field: Name"):
        await slack.submit(priya, {"Kind": "Stdio"})
    await slack.submit(priya, {"Name": "github"})
    body = next(body for kind, body in bolt.heard if kind == "submitted")
    values = body["view"]["state"]["values"]
    assert values["name"]["name"] == {"type": "plain_text_input", "value": "github"}
    assert values["kind"]["kind"]["selected_option"]["value"] == "stdio"
    assert slack.modals(priya) == []


async def test_an_answer_to_a_submission_can_name_errors_change_push_or_clear(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await opened(slack, bolt, client, priya, place)
    bolt.answers["add"] = {"response_action": "errors", "errors": {"name": "taken"}}
    await slack.submit(priya, {"Name": "github"})
    assert slack.modal(priya).errors == {"name": "taken"}
    bolt.answers["add"] = {"response_action": "update", "view": modal(private_metadata="2")}
    await slack.submit(priya)
    assert (slack.modal(priya).errors, slack.modal(priya).drawn["private_metadata"]) == ({}, "2")
    bolt.answers["add"] = {"response_action": "push", "view": modal(private_metadata="3")}
    await slack.submit(priya)
    assert [view.drawn["private_metadata"] for view in slack.modals(priya)] == ["2", "3"]
    bolt.answers["add"] = {"response_action": "clear"}
    await slack.submit(priya, {"Name": "jira"})
    assert slack.modals(priya) == []


async def test_a_wrong_view_in_an_answer_is_refused(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await opened(slack, bolt, client, priya, place)
    bolt.answers["add"] = {"response_action": "update", "view": modal(private_metadata="x" * 3001)}
    with pytest.raises(Refused, match="invalid_arguments"):
        await slack.submit(priya, {"Name": "github"})


async def test_a_submission_nobody_acknowledges_leaves_the_modal_open(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await opened(slack, bolt, client, priya, place)
    slack.post.within = 0.05
    slack.sockets.connections[0].muted = True
    delivery = await slack.submit(priya, {"Name": "github"})
    assert not delivery.acknowledged
    assert len(slack.modals(priya)) == 1


async def test_closing_is_told_if_the_view_asked_for_it(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    await opened(slack, bolt, client, priya, place)
    await slack.close_modal(priya)
    await slack.until(lambda: "view_closed" in bolt.kinds())
    assert slack.modals(priya) == []
    await client.views_open(trigger_id=slack.trigger(priya), view=modal(notify_on_close=False))
    assert await slack.close_modal(priya) is None


async def test_an_external_select_gets_its_options_from_the_app(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    search = {"type": "external_select", "action_id": "search"}
    card = await posted(slack, client, place, search)
    assert [option["text"]["text"] for option in await slack.suggest(priya, card, "search", "git")] == ["git"]


async def test_a_button_in_a_home_is_pressed_without_a_channel(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User
) -> None:
    await client.views_publish(user_id=priya.id, view={"type": "home", "blocks": picks(button("Go", "pick"))})
    home = slack.home(priya)
    assert home is not None
    await slack.press(priya, home, "Go")
    body = bolt.heard[-1][1]
    assert body["view"]["id"] == home.id
    assert "channel" not in body
    assert "response_url" not in body


# Commands and shortcuts


async def test_a_command_is_answered_to_its_user_alone(
    slack: FakeSlack, bolt: BoltApp, priya: User, place: Channel
) -> None:
    lee = slack.user("Lee")
    slack.join(lee, place)
    await slack.command(priya, "/mcp", "list", place)
    assert bolt.heard[-1][1]["channel_name"] == "incidents"
    assert [(s.words, s.ephemeral) for s in slack.what_user_sees(priya, place)][-1] == ("ok list", True)
    assert "ok list" not in [sight.words for sight in slack.what_user_sees(lee, place)]
    with pytest.raises(LookupError, match="/shout is not a valid command"):
        await slack.command(priya, "/shout", "", place)


async def test_a_command_works_where_the_bot_is_not(slack: FakeSlack, bolt: BoltApp, priya: User) -> None:
    away = slack.channel("away", priya, with_bot=False)
    await slack.command(priya, "/mcp", "list", away)
    assert slack.what_user_sees(priya, away)[-1].words == "ok list"


async def test_a_shortcut_on_a_message_brings_the_message(
    slack: FakeSlack, bolt: BoltApp, priya: User, place: Channel
) -> None:
    said = slack.say(priya, place, "what is this?")
    await slack.shortcut(priya, "ask", said)
    await slack.shortcut(priya, "ask")
    on_message, anywhere = (body for kind, body in bolt.heard if kind in {"message_action", "shortcut"})
    assert (on_message["message"]["text"], on_message["message_ts"]) == ("what is this?", said.ts)
    assert "message" not in anywhere


# Response URLs


async def respond(slack: FakeSlack, session: ClientSession, url: str, **body: Any) -> tuple[int, str]:
    answer = await AsyncWebhookClient(url, session=session).send_dict(body)
    return answer.status_code, answer.body


async def command_url(slack: FakeSlack, bolt: BoltApp, priya: User, place: Channel) -> str:
    await slack.command(priya, "/mcp", "list", place)
    return str(bolt.heard[-1][1]["response_url"])


async def test_a_response_url_is_good_for_five_uses(
    slack: FakeSlack, bolt: BoltApp, session: ClientSession, priya: User, place: Channel
) -> None:
    url = await command_url(slack, bolt, priya, place)
    for n in range(5):
        assert await respond(slack, session, url, text=str(n)) == (200, "ok")
    assert await respond(slack, session, url, text="6") == (404, "used_url")
    assert [sight.words for sight in slack.what_user_sees(priya, place)][1:] == list("01234")


async def test_a_response_url_is_good_for_half_an_hour(
    slack: FakeSlack, bolt: BoltApp, session: ClientSession, priya: User, place: Channel
) -> None:
    url = await command_url(slack, bolt, priya, place)
    slack.clock.advance(1801)
    assert await respond(slack, session, url, text="late") == (404, "expired_url")


async def test_a_response_is_for_all_only_if_it_says_so_and_must_be_a_message(
    slack: FakeSlack, bolt: BoltApp, session: ClientSession, priya: User, place: Channel
) -> None:
    lee = slack.user("Lee")
    slack.join(lee, place)
    url = await command_url(slack, bolt, priya, place)
    await respond(slack, session, url, text="mine")
    await respond(slack, session, url, text="ours", response_type="in_channel")
    assert await respond(slack, session, url, text="") == (400, "no_text")
    assert await respond(slack, session, url, text="x", blocks=[{"type": "banner"}]) == (400, "invalid_blocks")
    assert await respond(slack, session, url, text="x", colour="red") == (400, "unknown argument: colour")
    seen = [sight.words for sight in slack.what_user_sees(lee, place)]
    assert (seen.count("mine"), seen.count("ours")) == (0, 1)


async def test_a_response_can_delete_the_message_it_is_about(
    slack: FakeSlack, bolt: BoltApp, client: AsyncWebClient, priya: User, place: Channel
) -> None:
    card = await posted(slack, client, place, button("Go", "pick"))
    await slack.press(priya, card, "Go")
    assert client.session is not None
    await respond(slack, client.session, bolt.heard[-1][1]["response_url"], delete_original=True)
    assert slack.what_user_sees(priya, place) == []
