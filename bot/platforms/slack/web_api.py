"""Client of Slack's Web API: one session, rate limits for every call, every failure a DeliveryFailed with a cause and a
fix; and references of channels, threads and messages.

The only module that uses slack_sdk's client. Reading methods are sent as GET, writing ones as JSON. The error codes are
those of the method reference at docs.slack.dev. No error contains a token or the text that was sent.

Not every workspace takes each kind of block: Slack introduces them plan by plan, and clients of governments later. A
refused request is sent again with older kinds of the same content. Refused kinds are not sent to the workspace for an
hour: Slack has the same code for a layout with a mistake, so one refusal says little about the workspace.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.async_handler import AsyncRetryHandler
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler, AsyncServerErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from bot.chat.http import (
    FileSource,
    HttpSession,
    check_size,
    download,
    file_name,
    make_discreet,
    parse_retry_after,
    unreachable,
)
from bot.domain.conversations import Attachment, ConversationKey
from bot.errors import DeliveryFailed, NotFound
from bot.i18n import gettext_lazy
from bot.platforms.slack.blocks import (
    PLAIN_TEXT,
    Block,
    buttons,
    fallback_text,
    plain_text,
    preformatted,
    rich_text,
    section,
)
from bot.platforms.slack.rate_limits import PATIENCE, RateLimiter
from bot.rendering.tables import columns
from bot.rendering.text_safety import single_line

log = logging.getLogger(__name__)

PLATFORM = "slack"

REFUSALS = frozenset({"invalid_blocks", "invalid_blocks_format", "invalid_arguments"})
"""Codes for a layout that Slack does not take; `invalid_arguments` is that of a view."""
STEPS = (frozenset({"table", "context_actions"}), frozenset({"rich_text"}))
"""Kinds of blocks that are replaced, the newest first."""
REFUSED_SECONDS = 3600.0

REINSTALL = gettext_lazy("install the app again and set the new SLACK_BOT_TOKEN")
INVITE = gettext_lazy("invite the bot to the channel (/invite)")
ASK_AN_ADMIN = gettext_lazy("ask an administrator of the workspace")
NO_TEAM_ACCESS = "team_access_not_granted"
"""Code for a workspace that the token of an organization is not for."""
_CAUSES: Mapping[str, str] = {
    "invalid_auth": gettext_lazy("Slack does not know the token."),
    "not_authed": gettext_lazy("Slack was asked without a token."),
    "account_inactive": gettext_lazy("The token belongs to an app or a workspace that was removed."),
    "token_revoked": gettext_lazy("The token was revoked."),
    "token_expired": gettext_lazy("The token has expired."),
    "not_allowed_token_type": gettext_lazy("Slack takes another kind of token for this."),
    "channel_not_found": gettext_lazy("Slack has no such channel, or the bot cannot see it."),
    "not_in_channel": gettext_lazy("The bot is not in the channel."),
    "is_archived": gettext_lazy("The channel is archived."),
    "is_inactive": gettext_lazy("The channel is archived, frozen or deleted."),
    "thread_not_found": gettext_lazy("The thread is gone."),
    "cannot_reply_to_message": gettext_lazy("That message takes no replies."),
    "restricted_action": gettext_lazy("The workspace does not allow the bot to post there."),
    "restricted_action_read_only_channel": gettext_lazy("The channel is read-only."),
    "restricted_action_thread_only_channel": gettext_lazy("In that channel only threads can be written in."),
    "restricted_action_non_threadable_channel": gettext_lazy("That channel has no threads."),
    "ekm_access_denied": gettext_lazy("The workspace's administrators have suspended posting."),
    "access_denied": gettext_lazy("The workspace denies the bot access."),
    NO_TEAM_ACCESS: gettext_lazy("The app is not installed in that workspace."),
    "org_login_required": gettext_lazy("The workspace is being moved."),
    "no_permission": gettext_lazy("The bot may not do that there."),
    "messages_tab_disabled": gettext_lazy("The app takes no direct messages."),
    "cannot_dm_bot": gettext_lazy("Bots cannot be written to."),
    "user_not_found": gettext_lazy("Slack knows no such person."),
    "user_not_visible": gettext_lazy("The bot cannot see that person."),
    "user_not_in_channel": gettext_lazy("That person is not in the channel."),
    "edit_window_closed": gettext_lazy("The workspace does not let messages be edited any more."),
    "cant_update_message": gettext_lazy("Slack does not let that message be edited."),
    **dict.fromkeys(("msg_too_long", "msg_blocks_too_long"), gettext_lazy("Slack finds the message too long.")),
    "invalid_blocks": gettext_lazy("Slack does not take the message's layout."),
    "no_text": gettext_lazy("Slack takes no empty message."),
    "invalid_arguments": gettext_lazy("Slack does not take the request."),
    "unknown_method": gettext_lazy("This Slack does not offer that."),
    "message_not_found": gettext_lazy("The message is gone."),
    **dict.fromkeys(("expired_trigger_id", "trigger_expired"), gettext_lazy("It took too long to open the form.")),
}
"""Causes of permanent rejections by Slack's code."""
_FIXES: Mapping[str, str] = {
    **dict.fromkeys(("invalid_auth", "account_inactive", "token_revoked", "token_expired"), REINSTALL),
    **dict.fromkeys(("channel_not_found", "not_in_channel"), INVITE),
    **dict.fromkeys(("is_archived", "is_inactive"), gettext_lazy("unarchive it, or ask somewhere else")),
    **dict.fromkeys(filter(re.compile("restricted_").match, _CAUSES), ASK_AN_ADMIN),
    **dict.fromkeys(("ekm_access_denied", "access_denied", NO_TEAM_ACCESS), ASK_AN_ADMIN),
    **dict.fromkeys(("org_login_required", "no_permission"), ASK_AN_ADMIN),
    **dict.fromkeys(("expired_trigger_id", "trigger_expired"), gettext_lazy("press the button again")),
    "not_authed": gettext_lazy("set SLACK_BOT_TOKEN"),
    "not_allowed_token_type": gettext_lazy("check SLACK_BOT_TOKEN (xoxb-…)"),
    "messages_tab_disabled": gettext_lazy("turn its Messages tab on"),
}
T = TypeVar("T")
LOCKED_OUT = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required"}
)
"""Codes for a token that Slack rejects for all requests."""
TEAMS_A_PAGE, MOST_TEAM_PAGES = 1_000, 20
NEED_TEAM = frozenset({"usergroups.list"})
"""Methods that need the workspace beside a token for a whole organization."""
API_URL = "https://slack.com/api/"
ANSWER_SECONDS = 20.0
BUSY_SECONDS = 30.0
"""Pause after a 429 that names none."""
_FILE_HOSTS = ("files.slack.com", "slack-files.com", "files-origin.slack.com")
LONGEST_FILE_NAME = 200
_SECRET = re.compile(r"(ticket=|xox[a-z]-|xapp-)[^\s'\"&]+")


class BlockSupport:
    """Kinds of blocks that the workspace takes. `code_of` returns Slack's code of a rejection, empty for others.
    `clock` is in seconds.
    """

    def __init__(self, code_of: Callable[[Exception], str], clock: Callable[[], float]) -> None:
        self._code_of = code_of
        self._clock = clock
        self._refused: frozenset[str] = frozenset()
        self._until = clock()

    @property
    def refused(self) -> frozenset[str]:
        """Kinds that the workspace refused within the last hour."""
        return self._refused if self._clock() < self._until else frozenset()

    async def send(self, arguments: Mapping[str, Any], request: Callable[[Mapping[str, Any]], Awaitable[T]]) -> T:
        """Return the result of a request with these arguments; older blocks replace those that the workspace refuses.
        Raises the errors of `request`.
        """
        if not _kinds(arguments):
            return await request(arguments)
        known = refused = self.refused
        while True:
            try:
                result = await request(_with_older_blocks(arguments, refused))
            except Exception as error:
                more = next((step for step in STEPS if step & _kinds(arguments) - refused), frozenset())
                if self._code_of(error) not in REFUSALS or not more:
                    raise
                refused |= more & _kinds(arguments)
            else:
                if refused != known:
                    log.warning(
                        "Slack takes no blocks of these kinds here, using older ones for an hour: %s",
                        ", ".join(sorted(refused)),
                    )
                    self._refused, self._until = self.refused | refused, self._clock() + REFUSED_SECONDS
                return result


def _blocks(arguments: Mapping[str, Any]) -> Sequence[Block]:
    view = arguments.get("view")
    blocks = view.get("blocks") if isinstance(view, dict) else arguments.get("blocks")
    return blocks if isinstance(blocks, list) else ()


def _kinds(arguments: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(block.get("type")) for block in _blocks(arguments))


def _with_older_blocks(arguments: Mapping[str, Any], refused: frozenset[str]) -> Mapping[str, Any]:
    blocks = [older for block in _blocks(arguments) for older in _older(block, refused)]
    view = arguments.get("view")
    return {**arguments, **({"view": {**view, "blocks": blocks}} if isinstance(view, dict) else {"blocks": blocks})}


def _older(block: Block, refused: frozenset[str]) -> Iterator[Block]:
    kind = block.get("type")
    if kind not in refused:
        yield block
        return
    match kind:
        case "table":
            rows = [[fallback_text([cell]) for cell in row] for row in block["rows"]]
            aligned = [settings["align"] for settings in block.get("column_settings", ())]
            yield from _older(rich_text(preformatted(columns(rows, aligned))), refused)
        case "context_actions":
            yield from buttons(
                {
                    "type": "button",
                    "text": plain_text(element[side]["text"]["text"]),
                    "action_id": element["action_id"],
                    "value": element[side]["value"],
                }
                for element in block["elements"]
                for side in ("positive_button", "negative_button")
            )
        case _:
            text = fallback_text([block])
            for start in range(0, len(text), PLAIN_TEXT):
                yield section(text[start : start + PLAIN_TEXT])


class SlackWebApiError(DeliveryFailed):
    """Slack rejected the request. `code` is Slack's error code."""

    def __init__(
        self,
        code: str,
        cause: str,
        fix: str = "",
        *,
        retry_after: float | None = None,
        permanent: bool = False,
        details: str = "",
    ) -> None:
        super().__init__(cause, fix, retry_after=retry_after, permanent=permanent, details=details)
        self.code = code


class SlackConnectionError(DeliveryFailed):
    """Connection error: the request may or may not have been processed."""


def api_error(method: str, answer: Mapping[str, Any], retry_after: float | None = None) -> SlackWebApiError:
    """Return the error for Slack's answer to a call of `method`; `retry_after` is in seconds."""
    code = str(answer.get("error") or "unknown_error")[:80]
    if code == "missing_scope":
        needed = str(answer.get("needed") or "")[:200]
        fix: str = (
            gettext_lazy("add the scope {scope} to the app and install it again", scope=needed) if needed else REINSTALL
        )
        return SlackWebApiError(code, gettext_lazy("The app lacks a scope."), fix, permanent=True, details=method)
    if code in _CAUSES:
        cause, fix = _CAUSES[code], _FIXES.get(code, "")
        return SlackWebApiError(code, cause, fix, permanent=True, details=f"{method}: {code}")
    if code in ("ratelimited", "rate_limited"):
        return SlackWebApiError(
            "ratelimited", gettext_lazy("Slack asks for a pause."), retry_after=retry_after, details=method
        )
    return SlackWebApiError(
        code, gettext_lazy("Slack rejected the request."), retry_after=retry_after, details=f"{method}: {code}"
    )


def library_log(part: str = "sdk") -> logging.Logger:
    """Return the logger for a part of Slack's libraries: warnings only, because lower levels log whole messages; errors
    only for Bolt, which warns of intended settings.
    """
    log = logging.getLogger(f"bot.platforms.slack.library.{part}")
    level = logging.ERROR if part == "bolt" else logging.WARNING
    make_discreet(log, lambda line: _SECRET.sub(r"\1…", line), level)
    return log


@dataclass(frozen=True, slots=True)
class Identity:
    """Owner of the token. `url` is that of the workspace."""

    team: str
    enterprise: str
    user: str
    bot: str
    name: str
    url: str
    scopes: frozenset[str] = frozenset()


class WebApi(HttpSession):
    """Calls Slack as the bot. Enter it before use, and leave it after the last call, unless it uses the session of
    `shared`. `team` is the workspace if the token is for its whole organization. `another_token` returns another token
    in place of one that Slack rejects, or the same.
    """

    def __init__(
        self,
        token: str,
        *,
        url: str = API_URL,
        pacing: RateLimiter | None = None,
        team: str = "",
        shared: HttpSession | None = None,
        another_token: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        super().__init__(ANSWER_SECONDS, url)
        self._token = token
        self._team = team
        self._shared = shared
        self._another_token = another_token
        self.url = url if url.endswith("/") else f"{url}/"
        self.pacing = pacing or RateLimiter()
        self.blocks = BlockSupport(_code_of, self.pacing.clock)
        self._identity: Identity | None = None
        self._asking = asyncio.Lock()
        self._clients: dict[bool, AsyncWebClient] = {}

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        return super().session if self._shared is None else self._shared.session

    def replace_token(self, token: str) -> None:
        """Use another token from now on."""
        if token != self._token:
            self._token = token
            self._clients.clear()

    @property
    def bearer(self) -> Mapping[str, str]:
        """Authorization header of the bot."""
        return {"Authorization": f"Bearer {self._token}"}

    def client(self, *, patient: bool = True) -> AsyncWebClient:
        """Return Slack's client on the shared session. A patient one retries calls without a response, for calls that
        may be repeated.
        """
        if patient not in self._clients:
            handlers: list[AsyncRetryHandler] = (
                [AsyncConnectionErrorRetryHandler(), AsyncServerErrorRetryHandler()] if patient else []
            )
            self._clients[patient] = AsyncWebClient(
                token=self._token,
                base_url=self.url,
                session=self.session,
                logger=library_log(),
                retry_handlers=handlers,
            )
            # The library would take the variables' proxy also where NO_PROXY names the host.
            self._clients[patient].proxy = self.proxy
        return self._clients[patient]

    async def teams(self) -> frozenset[str]:
        """Return the ids of the workspaces that the token of an organization is for. Raises DeliveryFailed."""
        pages = self.pages("auth.teams.list", "teams", most=MOST_TEAM_PAGES, limit=TEAMS_A_PAGE)
        return frozenset([str(team["id"]) async for page in pages for team in page if team.get("id")])

    async def check_access(self) -> None:
        """Raise DeliveryFailed, permanent if Slack rejects the token, or if the token of an organization is not for
        the workspace any more.
        """
        await self.edit("auth.test")
        if not self._team.startswith("T"):
            return
        try:
            teams = await self.teams()
        except SlackWebApiError as error:
            if error.permanent and error.code not in (*LOCKED_OUT, NO_TEAM_ACCESS):
                return  # Slack does not tell: the token may lack the scope of the list.
            raise
        if self._team not in teams:
            raise api_error("auth.teams.list", {"error": NO_TEAM_ACCESS})

    async def identity(self) -> Identity:
        """Return the owner of the token, requested once. Raises DeliveryFailed."""
        async with self._asking:
            if self._identity is None:
                answer, headers = await self._call("auth.test", {}, verb="POST", patient=True)
                named = next((value for name, value in headers.items() if name.lower() == "x-oauth-scopes"), "")
                self._identity = Identity(
                    team=self._team or str(answer.get("team_id", "")),
                    enterprise=str(answer.get("enterprise_id") or ""),
                    user=str(answer.get("user_id", "")),
                    bot=str(answer.get("bot_id", "")),
                    name=str(answer.get("user", "")),
                    url=str(answer.get("url", "")),
                    scopes=frozenset(scope.strip() for scope in named.split(",") if scope.strip()),
                )
            return self._identity

    async def read(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a reading method. Raises DeliveryFailed."""
        return (await self._call(method, arguments, verb="GET", patient=True))[0]

    async def pages(
        self, method: str, key: str, *, most: int, before: Callable[[], None] = lambda: None, **arguments: Any
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield the objects under `key` in the answers of a reading method, one list for each of at most `most`
        answers. `before` is called before each request. Raises DeliveryFailed.
        """
        cursor: str | None = None
        for _page in range(most):
            before()
            answer = await self.read(method, cursor=cursor, **arguments)
            yield objects_in(answer, key)
            if not (cursor := text_in(answer, "response_metadata", "next_cursor")):
                return

    async def edit(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a method that is safe to repeat. Raises DeliveryFailed."""
        return (await self._call(method, arguments, verb="POST", patient=True))[0]

    async def post(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Call a method once. Raises SlackConnectionError without a response, because the call may have been processed.
        Raises DeliveryFailed.
        """
        return (await self._call(method, arguments, verb="POST", patient=False))[0]

    async def post_message(
        self, channel: str, thread: str = "", *, text: str, blocks: Sequence[Block] = (), **more: Any
    ) -> MessageRef:
        """Post a message that unfurls no links. Raises as `post` does."""
        answer = await self.post(
            "chat.postMessage",
            channel=channel,
            thread_ts=thread or None,
            text=text,
            blocks=list(blocks) or None,
            unfurl_links=False,
            unfurl_media=False,
            **more,
        )
        return MessageRef(text_in(answer, "channel") or channel, text_in(answer, "ts"))

    async def upload(self, channel: str, thread: str, name: str, data: bytes) -> str:
        """Share a file in a channel or a thread and return its id. Raises SlackConnectionError without a response,
        because the file may have been shared. Raises DeliveryFailed.
        """
        await self.pacing.take("files.getUploadURLExternal")
        name = single_line(name, LONGEST_FILE_NAME) or "file"

        async def share() -> Mapping[str, Any]:
            with map_errors("files.completeUploadExternal"):
                answer = await self.client(patient=False).files_upload_v2(
                    file=data or b"\n", filename=name, title=name, channel=channel, thread_ts=thread or None
                )
            return answer.data if isinstance(answer.data, dict) else {}

        return text_in(await self._send_within_limits("files.completeUploadExternal", channel, share), "file", "id")

    async def with_token(self, token: str, method: str) -> Mapping[str, Any]:
        """Call a method with another token than the bot's. Raises DeliveryFailed."""
        await self.pacing.take(method)
        return (await self._once(method, {}, "POST", patient=True, token=token))[0]

    async def _call(
        self, method: str, arguments: Mapping[str, Any], *, verb: str, patient: bool
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        arguments = {name: value for name, value in arguments.items() if value is not None}
        channel = str(arguments.get("channel", ""))
        if self._team and method in NEED_TEAM:
            arguments = {**arguments, "team_id": self._team}
        return await self.blocks.send(
            arguments,
            lambda given: self._send_within_limits(
                method, channel, lambda: self._once(method, given, verb, patient=patient)
            ),
        )

    async def _send_within_limits(self, method: str, channel: str, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request when the limits of its method allow it; again after short pauses that Slack asks for, and with
        another token in place of a rejected one.
        """
        waited, was_rejected = 0.0, False
        while True:
            await self.pacing.take(method, channel)
            token = self._token
            try:
                return await request()
            except SlackWebApiError as error:
                if error.code in LOCKED_OUT and not was_rejected and self._another_token is not None:
                    was_rejected = True
                    self.replace_token(await self._another_token(token))
                    if self._token != token:
                        continue
                if error.code != "ratelimited":
                    raise
                seconds = error.retry_after if error.retry_after is not None else BUSY_SECONDS
                await self.pacing.close(method, seconds, channel)
                waited += seconds
                if waited > PATIENCE:
                    raise

    async def _once(
        self, method: str, arguments: Mapping[str, Any], verb: str, *, patient: bool, token: str = ""
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        given: dict[str, Any] = {"params" if verb == "GET" else "json": dict(arguments)}
        if token:
            given["json"]["token"] = token
        with map_errors(method):
            answer = await self.client(patient=patient).api_call(method, http_verb=verb, **given)
        data = answer.data
        return (data if isinstance(data, dict) else {}), answer.headers


async def fetch_file(api: WebApi, attachment: Attachment) -> bytes:
    """Download a file. Raises NotFound if it is missing or not readable, DeliveryFailed if the download failed."""
    check_size(attachment)
    try:
        answer = await api.read("files.info", file=attachment.id.rpartition("/")[2])
    except SlackWebApiError as error:
        if error.code in ("file_not_found", "file_deleted"):
            raise NotFound(gettext_lazy("{file} is gone.", file=file_name(attachment))) from error
        raise
    url = text_in(answer, "file", "url_private_download") or text_in(answer, "file", "url_private")
    source = FileSource("Slack", _FILE_HOSTS, api.url, api.bearer, gettext_lazy("add the scope files:read"))
    return await download(api.session, url, attachment, source)


def object_in(answer: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key of an answer; an empty one for anything else."""
    value = answer.get(key)
    return value if isinstance(value, dict) else {}


def text_in(answer: Mapping[str, Any], *path: str) -> str:
    """Return the text under a path of keys of an answer; empty for a missing one."""
    value: Any = answer
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value or "")


def objects_in(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in the list under a key of an answer; empty for anything else."""
    values = answer.get(key)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _code_of(error: Exception) -> str:
    return error.code if isinstance(error, SlackWebApiError) else ""


@contextmanager
def map_errors(method: str) -> Iterator[None]:
    """Map the errors of slack_sdk to DeliveryFailed, without their texts, which contain bodies and names of files."""
    try:
        yield
    except SlackApiError as error:
        raise _rejection_error(method, error) from error
    except (aiohttp.ClientError, SlackClientError, TimeoutError, OSError, ValueError) as error:
        cause, fix = unreachable("Slack", "status.slack.com", error)
        raise SlackConnectionError(cause, fix, details=f"{method}: {type(error).__name__}") from error


def _rejection_error(method: str, error: SlackApiError) -> DeliveryFailed:
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    headers = getattr(response, "headers", None) or {}
    data = getattr(response, "data", None)
    answer: Mapping[str, Any] = data if isinstance(data, dict) else {}
    if status == 429:
        answer = {"error": "ratelimited"}
    if not answer.get("error"):
        return SlackConnectionError(
            gettext_lazy("Slack does not answer."),
            gettext_lazy("check status.slack.com"),
            details=f"{method}: HTTP {status}",
        )
    return api_error(method, answer, parse_retry_after(headers))


# -------------------- channels, threads and messages


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message: its channel and its timestamp, which is its id there."""

    channel: str
    ts: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.ts}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text form; return None if it is invalid."""
        channel, colon, ts = text.partition(":")
        return cls(channel, ts) if channel and colon and ts else None


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """Location of a user: a channel, and an optional thread in it."""

    channel: str
    user: str
    thread: str = ""

    @property
    def direct(self) -> bool:
        """True for a direct conversation with the bot."""
        return self.channel.startswith("D")


def conversation(team: str, channel: str, thread: str) -> ConversationKey:
    """Return the key of a thread, named by its first message, or of the channel if `thread` is empty."""
    return ConversationKey(PLATFORM, team, channel, thread)


def message_keys(team: str, channel: str, ts: str, user: str, client_id: str = "") -> tuple[str, ...]:
    """Return the keys that deduplicate a message: its location, and the id of its author's client, which stays the same
    if the client sends it twice.
    """
    place = f"{PLATFORM}:{team}:{channel}:{ts}"
    return (place, f"{PLATFORM}:{team}:{channel}:{user}:{client_id}") if client_id else (place,)


async def is_member(api: WebApi, ref: ChannelRef) -> bool:
    """Return True if the bot may post where the user is: it is in the channel. Raises DeliveryFailed if that is unclear
    for now.
    """
    if ref.direct:
        return True
    try:
        answer = await api.read("conversations.info", channel=ref.channel)
    except SlackWebApiError as error:
        if error.code == "missing_scope":
            return True  # posting tells
        if not error.permanent:
            raise
        return False
    channel = object_in(answer, "channel")
    return bool(channel.get("is_member") or channel.get("is_im"))


async def direct_channel(api: WebApi, user: str) -> str:
    """Return the direct conversation with a user. Raises DeliveryFailed."""
    channel_id = text_in(await api.edit("conversations.open", users=user), "channel", "id")
    if not channel_id:
        raise DeliveryFailed(gettext_lazy("Slack opened no direct conversation with that person."), permanent=True)
    return channel_id
