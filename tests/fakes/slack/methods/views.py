"""views.open, push, update, publish."""

from __future__ import annotations

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.methods.table import method
from tests.fakes.slack.modals import View
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller
from tests.fakes.slack.view_shapes import checked_view


@method("views.open", "tier4", ("trigger_id", "interactivity_pointer", "view"))
def open_view(caller: Caller, args: Arguments) -> Json:
    """Open a modal for the trigger's user."""
    drawn = checked_view(args.json("view"), "modal")
    trigger = caller.world.modals.exchange(args.required_text("trigger_id"))
    return _view_answer(_open_view(caller, trigger.user, drawn))


@method("views.push", "tier4", ("trigger_id", "interactivity_pointer", "view"))
def push_view(caller: Caller, args: Arguments) -> Json:
    """Put a view on top of the trigger's modal; at most three are stacked."""
    drawn = checked_view(args.json("view"), "modal")
    modals = caller.world.modals
    trigger = modals.exchange(args.required_text("trigger_id"))
    if not trigger.from_view or not modals.stacks.get(trigger.user):
        raise Refused("not_found")
    return _view_answer(_open_view(caller, trigger.user, drawn, onto=trigger.from_view))


@method("views.update", "tier4", ("view", "view_id", "external_id", "hash"))
def update_view(caller: Caller, args: Arguments) -> Json:
    """Update an open view, with a hash only if it was not updated since."""
    view_id, external_id = args.text("view_id"), args.text("external_id")
    if bool(view_id) == bool(external_id):
        raise invalid_arguments("must provide one of view_id, external_id")
    drawn = checked_view(args.json("view"), "modal")
    view = caller.world.modals.find(view_id, external_id)
    if args.has("hash") and args.text("hash") != view.hash:
        raise Refused("hash_conflict")
    return _view_answer(caller.world.modals.change(view, drawn))


@method("views.publish", "tier4", ("user_id", "view", "hash"))
def publish_view(caller: Caller, args: Arguments) -> Json:
    """Draw the Home tab of a user."""
    drawn = checked_view(args.json("view"), "home")
    user = caller.workspace.person(args.required_text("user_id"))
    before = caller.workspace.homes.get(user.id)
    if args.has("hash") and before is not None and args.text("hash") != before.hash:
        raise Refused("hash_conflict")
    modals, bot = caller.world.modals, caller.bot.bot
    if before is None:
        view_id = f"V{caller.workspace.new_id('H')}"
        before = View(view_id, caller.bot.team.id, user.id, drawn, "", caller.world.app.id, bot.bot_id)
        caller.workspace.homes[user.id] = before
    modals.change(before, drawn)
    return _view_answer(before)


def _open_view(caller: Caller, user: str, drawn: Json, onto: str = "") -> View:
    app_id, bot_id = caller.world.app.id, caller.bot.bot.bot_id
    return caller.world.modals.open(user, caller.bot.team.id, drawn, app_id, bot_id, onto=onto)


def _view_answer(view: View) -> Json:
    return {"view": view.to_json()}
