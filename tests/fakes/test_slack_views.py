"""Modals and the Home tab as the real client opens and changes them."""

from __future__ import annotations

from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack
from tests.fakes.slack_refusals import code, refusal


def modal(text: str = "x", **more: Any) -> dict[str, Any]:
    return {
        "type": "modal",
        "title": {"type": "plain_text", "text": "Add"},
        "blocks": [{"type": "section", "text": {"type": "plain_text", "text": text}}],
        **more,
    }


def home(text: str = "x") -> dict[str, Any]:
    return {"type": "home", "blocks": [{"type": "section", "text": {"type": "plain_text", "text": text}}]}


def trigger(slack: FakeSlack, user_id: str, from_view: str = "") -> str:
    return slack.trigger(slack.workspace.users[user_id], from_view)


async def test_a_trigger_opens_one_modal_within_three_seconds(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    first, second = trigger(slack, priya.id), trigger(slack, priya.id)
    await client.views_open(trigger_id=first, view=modal())
    assert slack.modal(priya).drawn["blocks"][0]["text"]["text"] == "x"
    assert await code(client.views_open(trigger_id=first, view=modal())) == "exchanged_trigger_id"
    slack.clock.advance(3.1)
    assert await code(client.views_open(trigger_id=second, view=modal())) == "expired_trigger_id"
    assert await code(client.views_open(trigger_id="1.2.3", view=modal())) == "invalid_trigger_id"


async def test_a_wrong_view_does_not_use_the_trigger_up(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    given = trigger(slack, priya.id)
    wrong = await refusal(client.views_open(trigger_id=given, view=modal("x" * 3001)))
    assert "[json-pointer:/view/blocks/0/text/text]" in wrong["response_metadata"]["messages"][0]
    await client.views_open(trigger_id=given, view=modal())


async def test_three_views_can_be_stacked_from_within_a_modal(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    opened = await client.views_open(trigger_id=trigger(slack, priya.id), view=modal("1"))
    outside = client.views_push(trigger_id=trigger(slack, priya.id), view=modal("2"))
    assert await code(outside) == "not_found"
    for text in "23":
        inside = trigger(slack, priya.id, slack.modal(priya).id)
        pushed = await client.views_push(trigger_id=inside, view=modal(text))
    assert pushed["view"]["root_view_id"] == opened["view"]["id"]
    assert pushed["view"]["previous_view_id"] == slack.modals(priya)[1].id
    fourth = client.views_push(trigger_id=trigger(slack, priya.id, slack.modal(priya).id), view=modal("4"))
    assert await code(fourth) == "push_limit_reached"


async def test_an_update_with_an_old_hash_conflicts(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya = slack.user("Priya")
    view = (await client.views_open(trigger_id=trigger(slack, priya.id), view=modal("1")))["view"]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=modal("2"))
    late = client.views_update(view_id=view["id"], hash=view["hash"], view=modal("3"))
    assert await code(late) == "hash_conflict"
    await client.views_update(view_id=view["id"], view=modal("4"))
    assert slack.modal(priya).drawn["blocks"][0]["text"]["text"] == "4"


async def test_a_view_is_found_by_its_own_name_which_is_given_once(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, sam = slack.user("Priya"), slack.user("Sam")
    await client.views_open(trigger_id=trigger(slack, priya.id), view=modal("1", external_id="add"))
    await client.views_update(external_id="add", view=modal("2", external_id="add"))
    twice = client.views_open(trigger_id=trigger(slack, sam.id), view=modal("1", external_id="add"))
    assert await code(twice) == "duplicate_external_id"
    assert await code(client.views_update(view_id="V404", view=modal())) == "not_found"


async def test_a_home_is_published_for_one_person(slack: FakeSlack, client: AsyncWebClient) -> None:
    priya, sam = slack.user("Priya"), slack.user("Sam")
    first = (await client.views_publish(user_id=priya.id, view=home("1")))["view"]
    await client.views_publish(user_id=priya.id, view=home("2"), hash=first["hash"])
    old = client.views_publish(user_id=priya.id, view=home("3"), hash=first["hash"])
    assert await code(old) == "hash_conflict"
    shown = slack.home(priya)
    assert shown is not None
    assert shown.drawn["blocks"][0]["text"]["text"] == "2"
    assert slack.home(sam) is None
    assert await code(client.views_publish(user_id="U404", view=home())) == "user_not_found"
