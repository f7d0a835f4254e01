"""Clicks and commands: acknowledged at once, handled afterwards.

The user is looked up again, and the engine or the command checks their rights; the content of a button is not trusted.
A rejection is an ephemeral message.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from bot.chat.actions import (
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
)
from bot.chat.argument_editing import edit_command
from bot.chat.decisions import (
    approve_with_grant,
    decide,
    find_approval_step,
    open_whole,
    run_turn_action,
    save_feedback,
)
from bot.chat.rejection_messages import GONE, OUT_OF_DATE, TOO_MANY_REQUESTS, error_message
from bot.chat.text_commands import split_args
from bot.domain.approvals import DecisionType
from bot.domain.conversations import ConversationKey
from bot.domain.turns import ToolStep
from bot.errors import CountersignError
from bot.platforms.slack.command_runner import CommandRunner, TriggerId
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.files import direct_channel
from bot.platforms.slack.ids import conversation
from bot.platforms.slack.markup import MentionResolver, to_plain_text
from bot.platforms.slack.messages import TextCommand
from bot.platforms.slack.modals import Window, call_modal, confirm_modal, deny_modal, page_of_call, whole_call_modal
from bot.platforms.slack.payloads import ActionPayload, SlashCommandPayload, read_press, read_slash
from bot.platforms.slack.responders import ResponseTarget, send_ephemeral, text_message
from bot.platforms.slack.users import resolve_mentions
from bot.rendering.available_actions import CheckCallAction, RunAgainAction, StopTurnAction

log = logging.getLogger(__name__)

NO_OUTSIDERS = "Only full members of this workspace may see that."


class InteractionHandler:
    """Handles buttons and commands."""

    def __init__(self, platform: PlatformContext, invocations: CommandRunner) -> None:
        self._platform = platform
        self._api = platform.api
        self._people = platform.people
        self._engine = platform.engine
        self._invocations = invocations

    def on_text_command(self, command: TextCommand) -> None:
        """Handle a command in a mention of the bot."""
        place = ResponseTarget(command.spot)
        self.begin(self.command(command.words, place, None), place, "command")

    def on_slash_command(self, body: Mapping[str, Any]) -> None:
        """Handle a slash command."""
        slashed = read_slash(body)
        self.begin(self._slash(slashed, TriggerId.fresh(slashed.trigger)), slashed.place, "command")

    def on_action(self, body: Mapping[str, Any]) -> None:
        """Handle a click on a button."""
        pressed = read_press(body)
        if pressed is not None:
            self.begin(self._press(pressed, TriggerId.fresh(pressed.trigger)), pressed.place, "press")

    def begin(self, errand: Coroutine[Any, Any, None], place: ResponseTarget, name: str) -> None:
        """Start a task after the acknowledgement; the user is notified if it fails."""
        told = self._run_reporting_errors(errand, place)
        if not self._platform.background_tasks.start_for(
            place.spot.user, told, f"slack: {name}", lambda: self._whisper(place, TOO_MANY_REQUESTS)
        ):
            errand.close()

    async def command(self, words: tuple[str, ...], place: ResponseTarget, trigger: TriggerId | None) -> None:
        """Answer a command. Raises DeliveryFailed."""
        member = await self._people.member(place.spot.user)
        if refusal := self._platform.audience.rejection(member):
            await self._whisper(place, refusal)
            return
        await self._invocations.run(words, member, place, trigger)

    async def _run_reporting_errors(self, errand: Coroutine[Any, Any, None], place: ResponseTarget) -> None:
        try:
            await errand
        except (CountersignError, TimeoutError) as error:
            log.warning("interaction from Slack failed: %s", error)
            await self._whisper(place, error_message(error))

    async def _whisper(self, place: ResponseTarget, text: str) -> None:
        await send_ephemeral(self._api, place.spot, text_message(text))

    async def _slash(self, slashed: SlashCommandPayload, trigger: TriggerId | None) -> None:
        words = (slashed.command, *split_args(to_plain_text(slashed.text, MentionResolver())))
        await self.command(words, slashed.place, trigger)

    async def _press(self, payload: ActionPayload, trigger: TriggerId | None) -> None:  # noqa: C901 - one case for each kind
        if not payload.place.spot.channel:  # the button stands in somebody's Home
            payload = await self._at_home(payload)
        place = payload.place
        match payload.press:
            case Approve(cards):
                await self._approve(cards, payload)
            case ApproveWithGrant(ref, offer):
                await self._allow(ref, offer, payload)
            case Edit(ref):
                await self._beside(edit_command(ref), place, trigger)
            case RunCommandInNewReply(words):
                await self._beside(words, place, trigger)
            case OpenDenyForm(ref):
                await self._open(deny_modal(ref, str(place.without_response_url)), payload)
            case ViewCall() | ViewPendingCall():
                await self._show_call(payload.press, payload)
            case RunCommand(words):
                await self.command(words, place, trigger)
            case OpenConfirmation():
                await self._open(confirm_modal(payload.press, str(place)), payload)
            case SendFeedback() as rated:
                await self._rate(rated, place)
            case CheckCallAction() | RunAgainAction() | StopTurnAction():
                await self._take_up(payload.press, place)

    async def _beside(self, words: tuple[str, ...], place: ResponseTarget, trigger: TriggerId | None) -> None:
        """Answer an action on a card without replacing the card."""
        await self.command(words, replace(place, replaces=False), trigger)

    async def _approve(self, cards: tuple[ApprovalRef, ...], payload: ActionPayload) -> None:
        member = await self._people.member(payload.place.spot.user)
        await self._answered(await decide(self._engine, cards, DecisionType.APPROVE, member), cards[0], payload)

    async def _allow(self, card: ApprovalRef, offer: str, payload: ActionPayload) -> None:
        member = await self._people.member(payload.place.spot.user)
        await self._answered(await approve_with_grant(self._engine, card, offer, member), card, payload)

    async def _answered(self, told: str, card: ApprovalRef, payload: ActionPayload) -> None:
        """Post the result of a decision, or show it in the modal."""
        if told:
            await self._whisper(payload.place, await resolve_mentions(self._people, told))
        elif payload.view and (step := await self._platform.records.find_approval(card.approval_id)) is not None:
            # A card is redrawn by whoever draws the turn, a window by nobody.
            window = call_modal(step, keep=str(payload.place.without_response_url))
            await self._api.edit("views.update", view_id=payload.view, view=window)

    async def _take_up(self, offer: CheckCallAction | RunAgainAction | StopTurnAction, place: ResponseTarget) -> None:
        member = await self._people.member(place.spot.user)
        if refusal := self._platform.audience.rejection(member):
            await self._whisper(place, refusal)
            return
        if told := await run_turn_action(self._engine, offer, member.author):
            await self._whisper(place, told)

    async def _rate(self, rated: SendFeedback, place: ResponseTarget) -> None:
        person = await self._people.person(place.spot.user)
        refusal = self._platform.audience.rejection(person)
        await self._whisper(place, refusal or await save_feedback(self._platform.records, rated, person.author))

    async def _show_call(self, press: ViewCall | ViewPendingCall, payload: ActionPayload) -> None:
        if await self._is_outsider(payload):
            return
        match press:
            case ViewCall(ref, page):
                step, missing = await self._find(ref, payload.place), OUT_OF_DATE
            case ViewPendingCall(approval_id):
                step, page, missing = await self._platform.records.find_approval(approval_id), 1, GONE
        if step is None:
            await self._whisper(payload.place, missing)
            return
        member = await self._people.member(payload.place.spot.user)
        draw = (
            whole_call_modal if await open_whole(self._engine, step, member, page_of_call(step, page)) else call_modal
        )
        window = draw(step, page, str(payload.place.without_response_url))
        if payload.view:
            await self._api.edit("views.update", view_id=payload.view, view=window)
        else:
            await self._api.post("views.open", trigger_id=payload.trigger, view=window)

    async def _find(self, card: ApprovalRef, place: ResponseTarget) -> ToolStep | None:
        return await find_approval_step(self._engine, self._platform.records, await self.where(place), card)

    async def _is_outsider(self, payload: ActionPayload) -> bool:
        """Return True if the user may not see the call; such a user is notified."""
        member = await self._people.member(payload.place.spot.user)
        if outside := member.guest or member.external:
            await self._whisper(payload.place, NO_OUTSIDERS)
        return outside

    async def _open(self, window: Window, payload: ActionPayload) -> None:
        """Open a modal, on top of the one that contains the button."""
        method = "views.push" if payload.view else "views.open"
        await self._api.post(method, trigger_id=payload.trigger, view=window)

    async def _at_home(self, payload: ActionPayload) -> ActionPayload:
        """Return the same payload, answered in the direct conversation with the user."""
        spot = replace(payload.place.spot, channel=await direct_channel(self._api, payload.place.spot.user))
        return replace(payload, place=replace(payload.place, spot=spot), view="")

    async def where(self, place: ResponseTarget) -> ConversationKey:
        """Return the conversation of a target."""
        return conversation((await self._api.identity()).team, place.spot.channel, place.spot.thread)
