"""Users of the workspace: names, rights, user groups, and their mentions in texts.

Names are cached for five minutes. Decisions need a fresh lookup of the user, and groups of at most GROUP_SECONDS:
Slack allows 20 lists of groups a minute, and reports each change of a group. Groups are requested only if settings,
profiles or rules name some. A lookup for a decision waits for the rate limit, because a click must not be lost.

Bots, guests, users of other organizations and unknown users are marked as such. In sentences of the engine and the
commands `slack:U1` becomes `@sam`, and `slack-group:S1` becomes `@ops`.

Names in settings and rules may be of one workspace or organization: `slack:T1:U1`, `slack-group:T1:S1`. To the engine
such a name is a group: a member has it as a role, and the directory lists its members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TypeVar

from bot.chat import users
from bot.chat.users import PlatformUser, TtlCache
from bot.domain.conversations import Member
from bot.domain.locales import UNKNOWN, Locale, language_tag, time_zone_name
from bot.errors import DeliveryFailed
from bot.platforms.slack.web_api import PLATFORM, Identity, SlackWebApiError, WebApi, object_in, objects_in
from bot.ports.platform import DirectoryEntry
from bot.rendering.text_safety import single_line

GROUP = "slack-group:"
GROUP_SECONDS = 5.0
LOCALE_SECONDS = 1.0
LIMITED_SECONDS = 90.0
"""Seconds that a lookup for a decision waits for the rate limit."""
GROUP_EVENTS = frozenset({"subteam_created", "subteam_updated", "subteam_members_changed"})
_UNKNOWN = ("user_not_found", "user_not_visible", "users_not_found")

_PRINCIPALS = r"slack:(?:[TE][A-Z0-9]{1,20}:)?[UW][A-Z0-9]{1,20}|slack-group:(?:[TE][A-Z0-9]{1,20}:)?S[A-Z0-9]{1,20}"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Person(PlatformUser):
    """A user or bot of the workspace."""

    platform = PLATFORM

    guest: bool = False
    teams: frozenset[str] = frozenset()
    """Workspaces and organization of the user."""
    email: str = field(default="", repr=False)

    def in_team(self, team: str) -> Person:
        """Return the user, external if Slack names another workspace as theirs: an id alone may be of two users."""
        return replace(self, external=True) if team and team not in self.teams else self


@dataclass(frozen=True, slots=True)
class Group:
    """A user group. A group that was disabled has no users."""

    handle: str
    users: frozenset[str]


class UserDirectory:
    """Looks up users. `groups` are the user groups in the settings (`slack-group:S1`); without groups, memberships are
    not requested.
    """

    def __init__(
        self,
        api: WebApi,
        groups: frozenset[str] = frozenset(),
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._pause = pause
        self._group_ids = _ids(groups)
        self._more_groups: Callable[[], Awaitable[frozenset[str]]] | None = None
        self._people = TtlCache[str, Person](clock)
        self._groups_cache = TtlCache[str, Mapping[str, Group]](clock)

    def also_ask_for(self, groups: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Add groups to those of the settings; memberships are requested at every decision."""
        self._more_groups = groups

    async def person(self, user: str) -> Person:
        """Return a user, cached for five minutes. Raises DeliveryFailed."""
        return await self._people.get(user, lambda: self._request_person(user))

    async def member(self, user: str, team: str = "") -> Member:
        """Return a user of a workspace, if it is named, with current rights, and groups of at most GROUP_SECONDS.
        Raises DeliveryFailed.
        """
        person = await self._when_allowed(lambda: self._people.refresh(user, lambda: self._request_person(user)))
        person = person.in_team(team)
        identity = await self._api.identity()
        if not await self._needs_groups():
            return _member(person, {}, identity)
        groups = await self._when_allowed(
            lambda: self._groups_cache.get("", self._request_groups, max_age=GROUP_SECONDS)
        )
        return _member(person, groups, identity)

    async def find_by_email(self, email: str) -> str:
        """Return the id of the user with an e-mail address; empty if there is none. Raises DeliveryFailed."""
        try:
            answer = await self._api.read("users.lookupByEmail", email=email)
        except SlackWebApiError as error:
            if error.code not in _UNKNOWN:
                raise
            return ""
        return str(object_in(answer, "user").get("id") or "")

    async def cached_member(self, user: str) -> Member:
        """Return a user with rights and groups, up to five minutes old, not for decisions. Raises DeliveryFailed."""
        groups = await self._cached_groups() if await self._needs_groups() else {}
        return _member(await self.person(user), groups, await self._api.identity())

    async def locale(self, user: str) -> Locale:
        """Return the language and time zone of a user, as they were at the last lookup. One that was not looked up yet
        is, unless that takes too long. Never raises.
        """
        person = self._people.peek(user)
        try:
            async with asyncio.timeout(LOCALE_SECONDS):
                person = person or await self.person(user)
        except (DeliveryFailed, TimeoutError):
            return UNKNOWN
        return Locale(person.language or "", person.time_zone or "")

    def is_known(self, user: str) -> bool:
        """Return True if `person` needs no request."""
        return self._people.is_fresh(user)

    def cached_name(self, user: str) -> str:
        """Return the name of a recently looked up user, or their id."""
        person = self._people.peek(user)
        return person.name if person is not None else user

    async def group_name(self, group: str) -> str:
        """Return the name of a user group, cached for five minutes; empty if unknown. Raises DeliveryFailed."""
        groups = await self._cached_groups()
        return groups[group].handle if group in groups else ""

    def forget_groups(self) -> None:
        """Forget the groups after an event about one."""
        self._groups_cache.clear()

    async def _when_allowed(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call, repeated for LIMITED_SECONDS while the rate limit does not allow it."""
        waited = 0.0
        while True:
            try:
                return await call()
            except DeliveryFailed as error:
                if error.permanent or error.retry_after is None or waited + error.retry_after > LIMITED_SECONDS:
                    raise
                waited += error.retry_after
                await self._pause(error.retry_after)

    async def find_approver(self, principal: str) -> DirectoryEntry | None:
        """Return a user or group by its principal, up to five minutes old. None if it is gone, and for users
        without any right to approve. Raises DeliveryFailed.
        """
        workspace, own_id = _split(principal)
        if workspace and workspace not in _qualifiers(await self._api.identity()):
            return None
        if principal.startswith(GROUP):
            group = (await self._cached_groups()).get(own_id)
            return None if group is None else DirectoryEntry(group.handle, _principals(group.users))
        person = await self.person(own_id)
        if person.guest or person.external or person.bot:
            return None
        return DirectoryEntry(person.name, _principals(frozenset({own_id})) if workspace else None)

    async def name_of(self, principal: str) -> str:
        """Return the name of a user or group by its principal; empty if it is of another workspace or unknown. Raises
        DeliveryFailed.
        """
        workspace, own_id = _split(principal)
        if workspace and workspace not in _qualifiers(await self._api.identity()):
            return ""
        return await self.group_name(own_id) if principal.startswith(GROUP) else (await self.person(own_id)).name

    @property
    def names(self) -> users.PrincipalNames:
        """Names of principals, for sentences and replies."""
        return users.PrincipalNames(_PRINCIPALS, self.name_of)

    async def _needs_groups(self) -> bool:
        more = frozenset[str]() if self._more_groups is None else await self._more_groups()
        return bool(self._group_ids | _ids(more))

    async def _cached_groups(self) -> Mapping[str, Group]:
        return await self._groups_cache.get("", self._request_groups)

    async def _request_groups(self) -> Mapping[str, Group]:
        return _groups(await self._api.read("usergroups.list", include_users="true"))

    async def _request_person(self, user: str) -> Person:
        identity = await self._api.identity()
        try:
            answer = await self._api.read("users.info", user=user, include_locale="true")
        except SlackWebApiError as error:
            if error.code not in _UNKNOWN:
                raise
            return Person(user, user, external=True)
        return _read_person(user, object_in(answer, "user"), identity)


def _qualifiers(identity: Identity) -> tuple[str, ...]:
    return tuple(filter(None, (identity.team, identity.enterprise)))


def _split(principal: str) -> tuple[str, str]:
    """Return the workspace of a principal, empty if it names none, and the id of the user or group."""
    _kind, _, name = principal.partition(":")
    workspace, _, own_id = name.rpartition(":")
    return workspace, own_id


def _ids(groups: frozenset[str]) -> frozenset[str]:
    return frozenset(group.removeprefix(GROUP) for group in groups if group.startswith(GROUP))


def _principals(users: frozenset[str]) -> frozenset[str]:
    return frozenset(f"{PLATFORM}:{user}" for user in users)


def _member(person: Person, groups: Mapping[str, Group], identity: Identity) -> Member:
    """Return a member with all groups of the user: a waiting call may name one that is in no rule any more."""
    outside = person.external or person.bot
    ids = [group_id for group_id, group in groups.items() if person.id in group.users]
    roles = [f"{GROUP}{group_id}" for group_id in ids]
    for workspace in _qualifiers(identity):
        roles += [f"{PLATFORM}:{workspace}:{person.id}", *(f"{GROUP}{workspace}:{group_id}" for group_id in ids)]
    return Member(
        person.author,
        roles=frozenset() if outside else frozenset(roles),
        platform_admin=person.admin and not (outside or person.guest),
        guest=person.guest,
        external=outside,
        language=person.language,
        time_zone=person.time_zone,
        email=person.email,
    )


def _read_person(user: str, account: Mapping[str, Any], identity: Identity) -> Person:
    profile, teams = object_in(account, "profile"), _teams(account)
    names = (profile.get("display_name"), profile.get("real_name"), account.get("real_name"), account.get("name"), user)
    return Person(
        id=user,
        name=next((name for value in names if (name := single_line(str(value or ""), 80))), user),
        admin=any(account.get(flag) for flag in ("is_admin", "is_owner", "is_primary_owner")),
        guest=bool(account.get("is_restricted") or account.get("is_ultra_restricted")),
        external=bool(account.get("is_stranger") or account.get("deleted")) or identity.team not in teams,
        teams=teams,
        bot=bool(account.get("is_bot")) or user in (identity.user, "USLACKBOT"),
        language=language_tag(account.get("locale")),
        time_zone=time_zone_name(account.get("tz")),
        email=str(profile.get("email") or ""),
    )


def _teams(account: Mapping[str, Any]) -> frozenset[str]:
    """Return the workspaces of a user, and the Grid organization."""
    enterprise = object_in(account, "enterprise_user")
    teams = enterprise.get("teams")
    more = teams if isinstance(teams, list) else ()
    return frozenset(str(team) for team in (account.get("team_id"), enterprise.get("enterprise_id"), *more) if team)


def _groups(answer: Mapping[str, Any]) -> Mapping[str, Group]:
    groups: dict[str, Group] = {}
    for group in objects_in(answer, "usergroups"):
        if group.get("id"):
            users = group.get("users")
            members = map(str, users if isinstance(users, list) and not group.get("date_delete") else ())
            groups[str(group["id"])] = Group(str(group.get("handle") or ""), frozenset(members))
    return groups
