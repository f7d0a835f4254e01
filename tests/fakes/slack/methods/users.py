"""users.info, users.list, users.lookupByEmail, usergroups.list."""

from __future__ import annotations

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.methods.pages import page_and_cursor
from tests.fakes.slack.methods.table import PAGED, method
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.state import Caller


@method("users.info", "tier4", ("user", "include_locale"), "users:read", json=False)
def users_info(caller: Caller, args: Arguments) -> Json:
    """Return a user; the e-mail address only with its own scope."""
    return {"user": _user_json(caller, args.text("user"), with_locale=args.flag("include_locale"))}


@method("users.list", "tier2", ("include_locale", *PAGED), "users:read", json=False)
def users_list(caller: Caller, args: Arguments) -> Json:
    """Return the users, a page at a time."""
    page, more = page_and_cursor(args, sorted(caller.workspace.users), default=100)
    locale = args.flag("include_locale")
    return {"members": [_user_json(caller, user, with_locale=locale) for user in page]} | more


@method("users.lookupByEmail", "tier3", ("email",), "users:read.email", json=False)
def users_lookup_by_email(caller: Caller, args: Arguments) -> Json:
    """Return the user with an e-mail address."""
    email = args.required_text("email").lower()
    for user in caller.workspace.users.values():
        if user.email.lower() == email and not user.deleted:
            return {"user": _user_json(caller, user.id, with_locale=False)}
    raise Refused("users_not_found")


def _user_json(caller: Caller, user: str, *, with_locale: bool) -> Json:
    person = caller.workspace.person(user)
    described = person.to_json()
    if with_locale and not person.deleted:
        described["locale"] = person.locale
    if person.email and "users:read.email" in caller.bot.scopes:
        described["profile"]["email"] = person.email
    return described


GROUPS = ("include_count", "include_disabled", "include_users")


@method("usergroups.list", "tier2", GROUPS, "usergroups:read", json=False)
def usergroups_list(caller: Caller, args: Arguments) -> Json:
    """Return the user groups; disabled ones and their users only if asked for."""
    listed = []
    for group in caller.workspace.groups.values():
        if group.disabled and not args.flag("include_disabled"):
            continue
        described = group.to_json()
        if args.flag("include_users"):
            described["users"] = list(group.users)
        if not args.flag("include_count"):
            described.pop("user_count")
        listed.append(described)
    return {"usergroups": listed}
