"""The engine: the operations that platforms call, and the background loops."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from bot.domain.agents import PLACE_AGENT, AgentRef, Agents
from bot.domain.arrivals import Arrivals
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.tools import check_question
from bot.domain.turns import (
    Claim,
    EditedQuestion,
    EditEffect,
    Receipt,
    StepStatus,
    ToolStep,
    Turn,
    TurnRecord,
    TurnView,
    can_continue,
)
from bot.engine.approvals import ApprovalService
from bot.engine.elicitation import ElicitationService
from bot.engine.policy.rules import RuleBook
from bot.engine.possible_approvers import ApproverResolver
from bot.engine.prompt.builder import PromptDependencies, ToolSelection
from bot.engine.scheduler import ContentDeletion
from bot.engine.surfaces import Surfaces
from bot.engine.turn_runner import USUAL_SETTINGS, TurnDependencies, TurnRunner, TurnSettings
from bot.engine.usage import UsageMeters, no_limits
from bot.engine.view_delivery import ViewDelivery
from bot.engine.worker import Worker
from bot.errors import NotFound
from bot.i18n import _
from bot.ports import LanguageModels, Surface, Toolbox, TurnLog, TurnQueue, TurnViews

CONTINUE_QUESTION = "Go on where you were stopped. Do not repeat what you have written."
UNCLEAR_ENDS = frozenset({StepStatus.UNKNOWN})
REPEATABLE_ENDS = frozenset(status for status in StepStatus if status.ended and status is not StepStatus.DONE)

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic() -> float:
    """Return seconds since an arbitrary moment, for limits and leases. Time in system sleep counts if the system has
    CLOCK_BOOTTIME.
    """
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class Engine:
    """Entry point of the engine: receives messages, runs turns, delivers views. `approvals` takes the decisions of
    members, `elicitations` their answers.

    The database row is the state and a wakeup only a hint: every operation writes first and wakes afterwards.
    `on_change` runs when another process may have changed servers, policies or profiles. `tools` selects those of a
    model request. `observe` takes metrics. `allow` runs before a turn's first model request and raises LimitReached to
    reject it. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        turn_log: TurnLog,
        models: LanguageModels,
        toolbox: Toolbox,
        surfaces: Sequence[Surface],
        *,
        rules: RuleBook,
        settings: TurnSettings = USUAL_SETTINGS,
        tools: ToolSelection | None = None,
        on_change: Callable[[], None] = lambda: None,
        observe: MetricSink = null_sink,
        allow: Callable[[Turn], Awaitable[None]] = no_limits,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._rules = rules
        self._queue: TurnQueue = turn_log
        self._views: TurnViews = turn_log
        self._content_deletion = None if settings.keeps_content else ContentDeletion(turn_log, pause=pause)
        connected = Surfaces(surfaces)
        self.arrivals = Arrivals(clock)
        approvers = ApproverResolver(connected, settings.approval_notice)
        self.delivery = ViewDelivery(
            turn_log,
            connected,
            clock=clock,
            on_settled=self._wake,
            on_end=self._content_deletion.wake if self._content_deletion is not None else lambda: None,
            observe=observe,
            pause=pause,
        )
        self._meters = UsageMeters(turn_log, pause)
        read_thread = None if settings.keeps_content else connected.read_thread
        self._turn_dependencies = TurnDependencies(
            turn_log,
            models,
            toolbox,
            rules,
            connected,
            approvers,
            PromptDependencies(
                turn_log,
                self._meters,
                settings.instructions,
                settings.memory,
                tools or ToolSelection(),
                read_thread,
                pause,
            ),
            settings,
            self.delivery.deliver,
            allow,
            clock,
        )
        self.worker = Worker(
            turn_log,
            self._begin,
            self.delivery,
            connected,
            on_change=on_change,
            most_turns=settings.most_turns,
            pause=pause,
            clock=clock,
            arrivals=self.arrivals,
        )
        self.approvals = ApprovalService(
            turn_log, toolbox, rules, connected, approvers, wake_turn=self.worker.wake, wake_delivery=self.delivery.wake
        )
        self.elicitations = ElicitationService(turn_log, toolbox, self._wake)

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message. Its turn starts after all earlier turns of the conversation. Raises NotFound for an agent
        that is not one of the conversation.
        """
        if message.agent is not None and message.agent.id:
            ids = {agent.id for agent in self.agents(message.conversation).here}
            if message.agent.id not in ids and not await self.is_stored(message.keys):
                raise NotFound(_("There is no such agent here."), _("/agents lists those that are"))
        receipt = await self.worker.receive(message)
        if receipt.queue_position:
            self.delivery.wake()
        return receipt

    def agents(self, conversation: ConversationKey) -> Agents:
        """Return the agents that users of a conversation may ask by name."""
        return self._rules.agents(conversation)

    async def is_followed(self, conversation: ConversationKey, at: float, by: str = "") -> bool:
        """Return True if a message of this time continues the conversation without a mention. See `EngineApi`."""
        return await self._queue.is_followed(conversation, at, by)

    async def save_addressee(self, conversation: ConversationKey, *, is_bot: bool, at: float) -> None:
        """Record that a message sent at `at` addresses the bot or another user."""
        await self._queue.save_addressee(conversation, is_bot=is_bot, at=at)

    async def rename(self, conversation: ConversationKey, title: str) -> None:
        """Give a conversation another title."""
        await self._queue.rename(conversation, title)

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn in any state. Return False if it had ended."""
        stopped = await self._queue.stop(turn_id, by)
        if stopped:
            self.worker.cancel(turn_id)
            self.delivery.wake()
        return stopped

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Start a turn that runs a failed or unknown call again, with a fresh approval. Repeated requests return the
        same turn. Raises NotFound if there is no such call.
        """
        turn, step = await self._ended_call(turn_id, n, REPEATABLE_ENDS)
        name = step.tool.name if step.tool else step.call.name
        message = _follow_up(turn, by, f"again:{turn_id}:{n}", f"Run {name} again")
        may_have_run = step.status is StepStatus.UNKNOWN or turn.question.may_have_run
        return await self.receive(replace(message, call=step.call, again=True, may_have_run=may_have_run))

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Start a turn in which the model checks if a call of unknown outcome has run. Repeated requests return the
        same turn. Raises NotFound if there is no such call.
        """
        turn, step = await self._ended_call(turn_id, n, UNCLEAR_ENDS)
        # The question is posted in the conversation, so its secrets are masked as on an approval card.
        text = check_question(step.call.name, step.masked_arguments)
        return await self.receive(_follow_up(turn, by, f"check:{turn_id}:{n}", text))

    async def is_stored(self, keys: Sequence[str]) -> bool:
        """Return True if a message with one of these keys is a turn."""
        return await self._queue.is_stored(keys)

    async def edit_question(
        self, keys: Sequence[str], text: str, by: Author, agent: AgentRef | None = None
    ) -> EditedQuestion | None:
        """Take the edited text of a message from its author, and the agent that it names. Return None if the message
        has no turn.
        """
        edited = await self._queue.edit_question(keys, text, by, agent)
        if edited is not None and edited.effect is EditEffect.REPLACED:
            self.delivery.wake()
        return edited

    async def delete_question(self, keys: Sequence[str]) -> bool:
        """Stop the turn of a deleted message, and remove the message from later prompts. See `EngineApi`."""
        turn_id = await self._queue.delete_question(keys)
        if turn_id is not None:
            self.worker.cancel(turn_id)
            self.delivery.wake()
        return turn_id is not None

    async def ask_again(self, turn_id: str, by: Author) -> Receipt:
        """Ask the edited text of a turn's message, and stop that turn. Repeated requests return the same turn. Raises
        NotFound if the message is another user's or has not been edited.
        """
        turn = (await self._views.get_view(turn_id)).turn
        question = turn.question
        if not question.edited_text or by.principal != turn.author.principal:
            raise NotFound(_("There is no edited question of yours."))
        digest = hashlib.sha256(question.edited_text.encode(errors="replace")).hexdigest()[:16]
        message = replace(
            _follow_up(turn, turn.author, f"edited:{turn_id}:{digest}", question.edited_text),
            attachments=question.attachments,
            context=question.context,
            message_id=question.message_id,
        )
        if question.edited_agent is not None:
            message = replace(message, agent=question.edited_agent)
        receipt = await self.receive(message)
        await self.stop(turn_id, by)
        await self._queue.move_keys(turn_id, receipt.turn_id)
        return receipt

    async def continue_turn(self, turn_id: str, by: Author) -> Receipt:
        """Start a turn in which the model goes on where a turn was stopped, failed or ended by a limit. Repeated
        requests return the same turn. Raises NotFound if there is nothing to go on with.
        """
        view = await self._views.get_view(turn_id)
        if not can_continue(view):
            raise NotFound(_("That was not stopped, or there is nothing to go on with."))
        return await self.receive(_follow_up(view.turn, by, f"continue:{turn_id}", CONTINUE_QUESTION))

    async def view(self, turn_id: str) -> TurnView:
        """Return the stored view of a turn. Raises NotFound."""
        return replace(await self._views.get_view(turn_id), read=partial(self._views.get_file, turn_id))

    async def latest_turn(self, conversation: ConversationKey) -> Turn | None:
        """Return the last turn of a conversation, None if it has none."""
        return await self._views.latest_turn(conversation)

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the stored views of the last `limit` turns of a conversation, oldest first."""
        return await self._views.recent_turns(conversation, limit)

    def poll(self) -> None:
        """Look for turns and views at once, because the key prefixes of a surface have changed."""
        self.worker.poll()
        self.delivery.wake()

    async def run(self) -> None:
        """Run turns and deliver their views until cancelled. Then release turns and finish deliveries."""
        delivering = asyncio.create_task(self.delivery.run(), name="delivery")
        working = asyncio.create_task(self._work(), name="work")
        try:
            await asyncio.wait({delivering, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Workers stop first, so that the last views of released turns are still delivered.
            for task in (working, delivering):
                task.cancel()
                await asyncio.wait({task})
            if self._content_deletion is not None:
                await self._content_deletion.finish()
        for task in (working, delivering):
            if not task.cancelled():
                task.result()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.worker.run(), name="worker")
            group.create_task(self._meters.run(), name="meters")
            if self._content_deletion is not None:
                group.create_task(self._content_deletion.run(), name="content deletion")

    async def _ended_call(self, turn_id: str, n: int, ends: Collection[StepStatus]) -> tuple[Turn, ToolStep]:
        view = await self._views.get_view(turn_id)
        step = next((step for step in view.steps if step.n == n), None)
        if not isinstance(step, ToolStep) or step.status not in ends:
            raise NotFound(_("The call does not exist or needs no second try."))
        return view.turn, step

    def _wake(self, turn_id: str) -> None:
        """Go on with a turn after a stored answer, and look for stale views."""
        self.worker.wake(turn_id)
        self.delivery.wake()

    def _begin(self, claim: Claim, record: TurnRecord) -> TurnRunner:
        if claim.initial_record is not None and claim.initial_record.revision == 0:
            self.delivery.begin(claim.turn_id)
        return TurnRunner(claim, record, self._turn_dependencies)


def _follow_up(turn: Turn, by: Author, key: str, text: str) -> InboundMessage:
    """Return the message of another turn about this one, for the same agent."""
    return InboundMessage(
        (key,),
        turn.conversation,
        by,
        text,
        locale=turn.question.locale,
        author_locale=turn.question.author_locale,
        agent=turn.question.agent or PLACE_AGENT,
    )
