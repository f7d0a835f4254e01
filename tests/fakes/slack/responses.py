"""Response URLs: answers to an act of a user, five times within half an hour, without a token."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from tests.fakes.clock import Clock
from tests.fakes.slack import events
from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.blocks import refuse_blocks
from tests.fakes.slack.calls import Call
from tests.fakes.slack.messages import Json, Message
from tests.fakes.slack.methods.chat import contents
from tests.fakes.slack.refusals import Refused

if TYPE_CHECKING:
    from tests.fakes.slack.state import SlackState

KNOWN = frozenset(
    {
        *("text", "blocks", "attachments", "response_type", "replace_original", "delete_original"),
        *("thread_ts", "mrkdwn", "unfurl_links", "unfurl_media", "metadata"),
    }
)


@dataclass
class ResponseUrl:
    """One response URL: its user, channel, message (None after a command), expiry, and remaining uses."""

    team: str
    user: str
    channel: str
    message: Message | None
    until: float
    left: int


@dataclass
class ResponseUrls:
    """All that were given out, by their secret."""

    clock: Clock
    issued: dict[str, ResponseUrl] = field(default_factory=dict)

    def issue(self, world: SlackState, team: str, user: str, channel: str, message: Message | None = None) -> str:
        """Return a new URL."""
        secret = f"{team}/{len(self.issued) + 1}/r{len(self.issued) + 1:024d}"
        until = self.clock.now() + world.limits.response_url_lifetime
        self.issued[secret] = ResponseUrl(team, user, channel, message, until, world.limits.response_url_uses)
        return f"{world.base}/actions/{secret}"

    async def serve(self, world: SlackState, request: web.Request) -> web.StreamResponse:
        """Serve one use of a response URL."""
        call = Call("response_url", {}, "", self.clock.now())
        world.calls.append(call)
        target = self.issued.get(request.match_info["secret"])
        try:
            given = json.loads(await request.text() or "{}")
        except ValueError:
            return _no(call, 400, "invalid_payload")
        call.args = given if isinstance(given, dict) else {}
        if target is None or (gone := self._gone(target)):
            return _no(call, 404, gone if target else "no_such_url")
        call.team = target.team
        if unknown := set(call.args) - KNOWN:
            return _no(call, 400, f"unknown argument: {min(unknown)}")
        try:
            refuse_blocks(call.args, world.unsupported_blocks)
            answer_with(world, target, call.args)
        except Refused as refused:
            return _no(call, 400, refused.code)
        target.left -= 1
        call.outcome = "ok"
        return web.Response(text="ok")

    def _gone(self, target: ResponseUrl) -> str:
        if self.clock.now() > target.until:
            return "expired_url"
        return "used_url" if target.left <= 0 else ""


def answer_with(world: SlackState, target: ResponseUrl, given: Json) -> Message | None:
    """Carry out a response: delete or replace its message, or post a new one, ephemeral by default. Raises Refused with
    no_text or invalid_blocks.
    """
    workspace, about = world.workspaces[target.team], target.message
    bot = world.app.installations[target.team].bot
    args = Arguments(given)
    if args.flag("delete_original"):
        if about is not None:
            before = about.remember()
            about.deleted = True
            if not about.ephemeral_to:
                events.announce_deletion(world, workspace, about, before)
        return None
    text, blocks, markdown = contents(args)
    if args.flag("replace_original") and about is not None:
        before = about.remember()
        about.text, about.blocks, about.markdown = text, blocks or [], markdown
        if not about.ephemeral_to:
            events.announce_edit(world, workspace, about, before)
        return about
    ephemeral = args.text("response_type", "ephemeral") != "in_channel"
    message = Message(
        workspace.new_ts(),
        target.channel,
        bot.id,
        target.team,
        text=text,
        blocks=blocks or [],
        markdown=markdown,
        thread_ts=args.text("thread_ts") or (about.thread_ts if about else None),
        bot_id=bot.bot_id,
        app_id=world.app.id,
        ephemeral_to=target.user if ephemeral else "",
    )
    workspace.keep(message)
    if not ephemeral:
        events.announce_message(world, workspace, message)
    return message


def _no(call: Call, status: int, outcome: str) -> web.Response:
    call.outcome = outcome
    return web.Response(status=status, text=outcome)
