"""Users of the workspace: names, rights, user groups, and their mentions in texts.

Names are cached for five minutes; decisions need a fresh lookup. Groups are requested only if settings, profiles or
rules name some. Bots, guests, users of other organizations and unknown users are marked as such. In sentences of the
engine and the commands `slack:U1` becomes `@sam`, and `slack-group:S1` becomes `@ops`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from bot.chat import mentions
from bot.domain.commands import Reply
from bot.domain.conversations import Author, Member
from bot.platforms.slack.web_api import Identity, SlackWebApiError, WebApi
from bot.rendering.text_safety import single_line

KEPT_SECONDS = 300.0
KEPT_PEOPLE = 2000
GROUP = "slack-group:"
_UNKNOWN = ("user_not_found", "user_not_visible", "users_not_found")


@dataclass(frozen=True, slots=True)
class Person:
    """A user or bot of the workspace."""

    id: str
    name: str
    admin: bool = False
    guest: bool = False
    external: bool = False
    bot: bool = False

    @property
    def author(self) -> Author:
        """Author of messages, as the engine names users."""
        return Author("slack", self.id, self.name)


class UserDirectory:
    """Looks up users. `groups` are the user groups in the settings (`slack-group:S1`); without groups, memberships are
    not requested.
    """

    def __init__(
        self, api: WebApi, groups: frozenset[str] = frozenset(), *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._api = api
        self._groups = _ids(groups)
        self._more_groups: Callable[[], Awaitable[frozenset[str]]] = _no_groups
        self._clock = clock
        self._people: OrderedDict[str, tuple[float, Person]] = OrderedDict()
        self._asking: dict[str, asyncio.Lock] = {}
        self._members: tuple[float, Mapping[str, frozenset[str]]] = (float("-inf"), {})
        self._handles: tuple[float, Mapping[str, str]] = (float("-inf"), {})

    def also_ask_for(self, groups: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Add groups to those of the settings; memberships are requested at every decision."""
        self._more_groups = groups

    async def person(self, user: str) -> Person:
        """Return a user, cached for five minutes. Raises DeliveryFailed."""
        if (known := self._lately(user)) is not None:
            return known
        lock = self._asking.setdefault(user, asyncio.Lock())
        try:
            async with lock:  # whoever comes meanwhile needs no answer of their own
                return self._lately(user) or await self._ask(user)
        finally:
            if not lock.locked():
                self._asking.pop(user, None)

    async def member(self, user: str) -> Member:
        """Return a user with current rights and groups. Raises DeliveryFailed."""
        person = await self._ask(user)
        return _member(person, await self._groups_of(user, fresh=True))

    async def cached_member(self, user: str) -> Member:
        """Return a user with rights and groups, up to five minutes old, not for decisions. Raises DeliveryFailed."""
        return _member(await self.person(user), await self._groups_of(user, fresh=False))

    def cached_name(self, user: str) -> str:
        """Return the name of a recently looked up user, or their id."""
        kept = self._people.get(user)
        return kept[1].name if kept is not None else user

    async def group_name(self, group: str) -> str:
        """Return the name of a user group, cached for five minutes; empty if unknown. Raises DeliveryFailed."""
        asked_at, handles = self._handles
        if self._clock() - asked_at >= KEPT_SECONDS:
            listed = (await self._api.read("usergroups.list")).get("usergroups")
            groups = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
            handles = {str(each.get("id")): str(each.get("handle") or "") for each in groups}
            self._handles = (self._clock(), handles)
        return handles.get(group, "")

    def _lately(self, user: str) -> Person | None:
        kept = self._people.get(user)
        return kept[1] if kept is not None and self._clock() - kept[0] < KEPT_SECONDS else None

    async def _ask(self, user: str) -> Person:
        identity = await self._api.identity()
        try:
            answer = await self._api.read("users.info", user=user)
        except SlackWebApiError as error:
            if error.code not in _UNKNOWN:
                raise
            person = Person(user, user, external=True)
        else:
            found = answer.get("user")
            person = _read(user, found if isinstance(found, dict) else {}, identity)
        self._people[user] = (self._clock(), person)
        self._people.move_to_end(user)
        while len(self._people) > KEPT_PEOPLE:
            self._people.popitem(last=False)
        return person

    async def _groups_of(self, user: str, *, fresh: bool) -> frozenset[str]:
        wanted = self._groups | _ids(await self._more_groups())
        if not wanted:
            return frozenset()
        asked_at, members = self._members
        if fresh or self._clock() - asked_at >= KEPT_SECONDS:
            answer = await self._api.read("usergroups.list", include_users="true")
            members = _groups(answer)
            self._members = (self._clock(), members)
        # All of somebody's groups: a call that waits may be for one that no rule names any more.
        return frozenset(f"{GROUP}{group}" for group, users in members.items() if user in users)


def _ids(groups: frozenset[str]) -> frozenset[str]:
    return frozenset(group.removeprefix(GROUP) for group in groups if group.startswith(GROUP))


async def _no_groups() -> frozenset[str]:
    return frozenset()


def _member(person: Person, groups: frozenset[str]) -> Member:
    outside = person.external or person.bot
    return Member(
        person.author,
        roles=frozenset() if outside else groups,
        platform_admin=person.admin and not (outside or person.guest),
        guest=person.guest,
        external=outside,
    )


def _read(user: str, found: Mapping[str, Any], identity: Identity) -> Person:
    profile = found.get("profile")
    profile = profile if isinstance(profile, dict) else {}
    names = (profile.get("display_name"), profile.get("real_name"), found.get("real_name"), found.get("name"), user)
    return Person(
        id=user,
        name=next((name for each in names if (name := single_line(str(each or ""), 80))), user),
        admin=any(found.get(flag) for flag in ("is_admin", "is_owner", "is_primary_owner")),
        guest=bool(found.get("is_restricted") or found.get("is_ultra_restricted")),
        external=bool(found.get("is_stranger") or found.get("deleted")) or not _is_ours(found, identity),
        bot=bool(found.get("is_bot")) or user in (identity.user, "USLACKBOT"),
    )


def _is_ours(found: Mapping[str, Any], identity: Identity) -> bool:
    """Return True if the user belongs to this workspace, or to its Grid organization."""
    if found.get("team_id") == identity.team:
        return True
    grid = found.get("enterprise_user")
    teams = grid.get("teams") if isinstance(grid, dict) else None
    return isinstance(teams, list) and identity.team in teams


def _groups(answer: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    listed = answer.get("usergroups")
    found: dict[str, frozenset[str]] = {}
    for group in listed if isinstance(listed, list) else ():
        if isinstance(group, dict) and group.get("id") and not group.get("date_delete"):
            users = group.get("users")
            found[str(group["id"])] = frozenset(map(str, users if isinstance(users, list) else ()))
    return found


_PRINCIPALS = r"slack:[UW][A-Z0-9]{1,20}|slack-group:S[A-Z0-9]{1,20}"


async def resolve_mentions(people: UserDirectory, sentence: str) -> str:
    """Replace the principals of a sentence by names."""
    return await mentions.resolve_mentions(_names(people), sentence)


async def resolve_reply_mentions(people: UserDirectory, reply: Reply) -> Reply:
    """Replace the principals of a reply's Markdown by names. Code stays, because it is copied."""
    return await mentions.resolve_reply_mentions(_names(people), reply)


def _names(people: UserDirectory) -> mentions.PrincipalNames:
    async def name(principal: str) -> str:
        if principal.startswith(GROUP):
            return await people.group_name(principal.removeprefix(GROUP))
        return (await people.person(principal.partition(":")[2])).name

    return mentions.PrincipalNames(_PRINCIPALS, name)
