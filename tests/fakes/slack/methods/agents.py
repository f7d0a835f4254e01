"""assistant.threads.setStatus, setSuggestedPrompts; agents.sessions.setStatus, rename."""

from __future__ import annotations

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.methods.chat import dress_allowed, existing_place, thread_root
from tests.fakes.slack.methods.table import DRESSED, method
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller

STATES = ("processing", "active", "suspended", "closed")
TITLE = 200
LOADING = 10
PROMPTS = 4

STATUS = ("channel_id", "thread_ts", "status", "loading_messages", *DRESSED)


@method("assistant.threads.setStatus", "tier4", STATUS, "chat:write", "assistant:write")
def set_status(caller: Caller, args: Arguments) -> Json:
    """Show an activity below a thread. An empty status, a message or two minutes remove it."""
    key = _thread(caller, args)
    dress_allowed(caller, args)
    loading = args.json("loading_messages") or []
    if not isinstance(loading, list) or not all(isinstance(line, str) for line in loading):
        raise invalid_arguments("must be an array of strings [json-pointer:/loading_messages]")
    if len(loading) > LOADING:
        raise invalid_arguments(f"no more than {LOADING} items allowed [json-pointer:/loading_messages]")
    if "status" not in args.given:
        raise invalid_arguments("missing required field: status")
    caller.workspace.statuses.pop(key, None)
    if args.text("status"):
        shown = {"status": args.text("status"), "loading_messages": loading, "at": caller.now()}
        caller.workspace.statuses[key] = shown
    return {}


PROMPT = ("channel_id", "thread_ts", "title", "prompts")


@method("assistant.threads.setSuggestedPrompts", "tier4", PROMPT, "assistant:write")
def set_suggested_prompts(caller: Caller, args: Arguments) -> Json:
    """Offer up to four prompts: in a thread, or under agent view in the whole direct conversation."""
    channel = existing_place(caller, args, "channel_id")
    if not caller.world.app.agent:
        args.required_text("thread_ts")
    prompts = args.rows("prompts", "invalid_arguments") or []
    if not prompts or len(prompts) > PROMPTS or not all(p.get("title") and p.get("message") for p in prompts):
        raise invalid_arguments(f"between 1 and {PROMPTS} prompts with title and message [json-pointer:/prompts]")
    caller.workspace.prompts[channel.id, args.text("thread_ts")] = prompts
    return {}


SESSION = ("channel_id", "thread_ts", "status", "title", "initiator_user_id", *DRESSED)


@method("agents.sessions.setStatus", "tier3", SESSION, "chat:write")
def set_session_status(caller: Caller, args: Arguments) -> Json:
    """Say whether the agent works, waits or has ended. Without the event for Stop there is a warning, no button."""
    key = _agent_thread(caller, args)
    state = args.required_text("status")
    if state not in STATES:
        raise invalid_arguments(f"must be one of {', '.join(STATES)} [json-pointer:/status]")
    dress_allowed(caller, args)
    session = caller.workspace.sessions.setdefault(key, {})
    session["status"] = state
    if args.has("title"):
        session["title"] = _title(args)
    if args.has("initiator_user_id"):
        session["initiator"] = caller.workspace.person(args.text("initiator_user_id")).id
    session["stop_button"] = state == "processing" and "agent_session_stopped" in caller.world.app.events
    if "agent_session_stopped" not in caller.world.app.events:
        return {"warning": "missing_agent_session_stopped_event_subscription"}
    return {}


@method("agents.sessions.rename", "tier3", ("channel_id", "thread_ts", "title"), "chat:write")
def rename_session(caller: Caller, args: Arguments) -> Json:
    """Give a session a title."""
    key = _agent_thread(caller, args)
    caller.workspace.sessions.setdefault(key, {})["title"] = _title(args)
    return {}


def _title(args: Arguments) -> str:
    title = args.required_text("title")
    if len(title) > TITLE:
        raise invalid_arguments(f"must be less than {TITLE + 1} characters [json-pointer:/title]")
    return title


def _agent_thread(caller: Caller, args: Arguments) -> tuple[str, str]:
    if not caller.world.app.agent or "assistant:write" not in caller.bot.scopes:
        raise Refused("not_authorized")
    return _thread(caller, args)


def _thread(caller: Caller, args: Arguments) -> tuple[str, str]:
    channel = existing_place(caller, args, "channel_id")
    if caller.bot.bot.id not in channel.members:
        raise Refused("not_in_channel")
    return channel.id, thread_root(caller, channel, args.required_text("thread_ts"))
