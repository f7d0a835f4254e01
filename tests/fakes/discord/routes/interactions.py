"""The first answer to an interaction. It needs no bot's token: that of the interaction is in the path."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.checks import choice, only
from tests.fakes.discord.commands import check_choices
from tests.fakes.discord.drafts import ON_POST, Draft
from tests.fakes.discord.interactions import FITTING, Answer, Asked, Interaction, Modal
from tests.fakes.discord.mentions import UNSAID_IN_ANSWERS
from tests.fakes.discord.messages import Flag, Message, Type
from tests.fakes.discord.modals import checked_modal
from tests.fakes.discord.posting import keep
from tests.fakes.discord.refusals import Json, Refused, invalid
from tests.fakes.discord.routes.table import Request, route
from tests.fakes.discord.state import DiscordState


@route("POST /interactions/{interaction}/{token}/callback", query=("with_response",), body="object", without_token=True)
def callback(request: Request) -> Json | None:
    """Answer within three seconds, once."""
    world, interaction = request.world, request.world.interactions.get(request.path["token"])
    if interaction is None or interaction.id != request.path["interaction"] or interaction.failed:
        raise Refused(10062)
    if interaction.answered is not None:
        raise Refused(40060)
    if world.now() > interaction.at + world.limits.answer_within:
        raise Refused(10062)
    if interaction.channel.archived and interaction.channel.locked:
        raise Refused(50083)
    only("", request.body, "type", "data")
    choice("type", request.body.get("type"), sorted(FITTING[interaction.kind]))
    answer, data = Answer(request.body["type"]), request.body.get("data") or {}
    _answer(request, interaction, answer, data)
    interaction.answered = answer
    interaction.settle()
    return _interaction_json(interaction) if request.query.get("with_response") in {"1", "true"} else None


def new_answer(world: DiscordState, interaction: Interaction, flags: Flag) -> Message:
    """Return an empty message in answer to an interaction."""
    message = Message(world.ids.new(), interaction.channel, world.bot, flags=flags, webhook_id=world.app.id)
    message.interaction = interaction.metadata()
    if interaction.kind is Asked.COMMAND:
        context_menu = interaction.data.get("type", 1) != 1
        message.type = Type.CONTEXT_MENU_COMMAND if context_menu else Type.CHAT_INPUT_COMMAND
    if flags & Flag.EPHEMERAL:
        message.ephemeral_to = interaction.user.id
    return message


def posted_answer(world: DiscordState, interaction: Interaction, draft: Draft) -> Message:
    """Post a message as an answer, ephemeral if its flags say so, and return it.

    Raises:
        Refused: the message is invalid.
    """
    message = new_answer(world, interaction, Flag(draft.body.get("flags") or 0) & Flag.EPHEMERAL)
    draft.post(world, message, UNSAID_IN_ANSWERS, ON_POST | Flag.EPHEMERAL)
    return keep(world, message)


def _answer(request: Request, interaction: Interaction, answer: Answer, data: Json) -> None:
    world = request.world
    match answer:
        case Answer.MESSAGE:
            interaction.original = posted_answer(world, interaction, Draft(data, request.uploads))
        case Answer.DEFERRED_MESSAGE:
            only("data", data, "flags")
            flags = Flag(data.get("flags") or 0)
            if flags & ~Flag.EPHEMERAL:
                raise invalid("data.flags", "FAKE_FLAGS", "A deferral may be ephemeral and nothing else.")
            interaction.original = keep(world, new_answer(world, interaction, flags | Flag.LOADING))
        case Answer.DEFERRED_UPDATE | Answer.UPDATE if interaction.message is None:
            raise invalid("type", "BASE_TYPE_CHOICES", "There is no message to update.")
        case Answer.DEFERRED_UPDATE:
            only("data", data)
            interaction.original = interaction.message
        case Answer.UPDATE:
            assert interaction.message is not None
            if interaction.message.deleted:
                raise Refused(10008)
            Draft(data, request.uploads).edit(world, interaction.message, UNSAID_IN_ANSWERS)
            interaction.original = interaction.message
            interaction.message.edited_at = world.now()
            events.announce_edit(world, interaction.message)
        case Answer.CHOICES:
            only("data", data, "choices")
            interaction.choices = data.get("choices") or []
            check_choices("data", interaction.choices, interaction.data["focused_type"])
        case Answer.MODAL:
            interaction.modal = Modal(checked_modal(data), interaction)


def _interaction_json(interaction: Interaction) -> Json:
    described: Json = {"id": interaction.id, "type": int(interaction.kind)}
    answer, message = interaction.answered, interaction.original
    assert answer is not None
    if message is not None:
        described |= {
            "response_message_id": message.id,
            "response_message_loading": message.loading,
            "response_message_ephemeral": bool(message.ephemeral_to),
        }
    resource: Json = {"type": int(answer)}
    if message is not None and answer in {Answer.MESSAGE, Answer.DEFERRED_MESSAGE, Answer.UPDATE}:
        resource["message"] = message.to_json()
    return {"interaction": described, "resource": resource}
