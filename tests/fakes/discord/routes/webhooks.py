"""After the first answer: reading, changing and deleting it, and further messages, all with the interaction's token."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.drafts import Draft
from tests.fakes.discord.interactions import Interaction
from tests.fakes.discord.mentions import UNSAID_IN_ANSWERS
from tests.fakes.discord.messages import Flag, Message
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.routes.interactions import posted_answer
from tests.fakes.discord.routes.table import Request, route
from tests.fakes.discord.state import DiscordState

MESSAGE = "/webhooks/{application}/{token}/messages/{message}"


@route(
    "POST /webhooks/{application}/{token}",
    query=("wait", "with_components", "thread_id"),
    body="object",
    without_token=True,
)
def follow_up(request: Request) -> Json:
    """Post a further message. The first after a deferral replaces "thinking", and is ephemeral if that is."""
    world, interaction = request.world, _interaction(request)
    original = interaction.original
    if original is not None and original.loading:
        body = {name: value for name, value in request.body.items() if name != "flags"}
        flags = Flag(request.body.get("flags") or 0) & ~Flag.EPHEMERAL
        return _edit_message(world, original, Draft(body | ({"flags": int(flags)} if flags else {}), request.uploads))
    if interaction.is_outside and len(interaction.followups) >= world.limits.followups_outside:
        raise Refused(40094)
    message = posted_answer(world, interaction, request.draft)
    interaction.followups.append(message)
    return message.to_json()


@route(f"GET {MESSAGE}", query=("thread_id",), without_token=True)
def read(request: Request) -> Json:
    """Return one of the messages in answer."""
    return _message(request).to_json()


@route(f"PATCH {MESSAGE}", query=("with_components", "thread_id"), body="object", without_token=True)
def edit(request: Request) -> Json:
    """Change one of the messages in answer."""
    message = _message(request)
    if message.channel.archived:
        raise Refused(50083)
    return _edit_message(request.world, message, request.draft)


@route(f"DELETE {MESSAGE}", query=("thread_id",), without_token=True)
def delete(request: Request) -> None:
    """Delete one of the messages in answer."""
    message = _message(request)
    message.deleted = True
    events.announce_deletion(request.world, message)


def _edit_message(world: DiscordState, message: Message, draft: Draft) -> Json:
    was_loading = message.loading
    draft.edit(world, message, UNSAID_IN_ANSWERS)
    message.edited_at = None if was_loading else world.now()
    events.announce_edit(world, message)
    return message.to_json()


def _interaction(request: Request) -> Interaction:
    world, interaction = request.world, request.world.interactions.get(request.path["token"])
    if request.path["application"] != world.app.id:
        raise Refused(10015)
    if interaction is None or world.now() > interaction.at + world.limits.token_lifetime or interaction.failed:
        raise Refused(50027)
    if interaction.answered is None:
        raise Refused(10015)
    return interaction


def _message(request: Request) -> Message:
    interaction, wanted = _interaction(request), request.path["message"]
    mine = [message for message in (interaction.original, *interaction.followups) if message is not None]
    if wanted == "@original":
        found = interaction.original
    else:
        found = next((message for message in mine if message.id == wanted), None)
    if found is None or found.deleted:
        raise Refused(10008)
    return found
