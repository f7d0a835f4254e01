"""`/preferences`: the language and the time zone of the user, where the platform tells none or another is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.admin.command import CommandContext, CommandRejected, SubmissionContext, Verbs, form_of, option, verb
from bot.admin.dependencies import CommandDependencies
from bot.admin.profiles.fields import parse_language, parse_time_zone
from bot.admin.text_format import error_reply, format_moment
from bot.domain.commands import CompletionSource, Field, FieldKind, Form, Reply, ReplyAction, RequiredRole
from bot.domain.conversations import CONSOLE, Member
from bot.domain.locales import Locale, UserLocale, use_locale
from bot.i18n import _, current_language, format_time_zone, gettext_lazy, installed_languages, language_name

NOT_IN_A_TERMINAL = gettext_lazy("In a terminal, `LC_ALL` or `LANG` and `TZ` say your language and time zone.")
_LANGUAGE = option("language", "your language", choices=installed_languages(), metavar="TAG")
_TIME_ZONE = option(
    "timezone", "your time zone, such as Asia/Tokyo", completes=CompletionSource.TIME_ZONES, metavar="ZONE"
)


class PreferenceVerbs(Verbs):
    """Verbs of `/preferences`."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._store = dependencies.stores.locales
        self._clock = dependencies.clock

    @verb("show", "your language and time zone, and where they come from", who=RequiredRole.EVERYONE, aliases=("get",))
    async def _show(self, request: CommandContext) -> Reply:
        _check_platform(request.member)
        stored = await self._store.find(request.author.principal)
        return self._reply(_("Your language and time zone"), request.member, stored)

    @verb(
        "set",
        "choose your language and time zone; without options it asks",
        (_LANGUAGE, _TIME_ZONE),
        who=RequiredRole.EVERYONE,
        aliases=("edit",),
    )
    async def _set(self, request: CommandContext) -> Reply | Form:
        _check_platform(request.member)
        stored = await self._store.find(request.author.principal)
        given = {name: request.arguments.get(name) for name in ("language", "timezone") if request.arguments.has(name)}
        if not given:
            return _form({"language": stored.chosen.language, "timezone": stored.chosen.time_zone}, {})
        chosen, errors = _parse(stored.chosen, given)
        if errors:
            facts = tuple((f"--{name}", error) for name, error in errors.items())
            return replace(error_reply(_("Nothing was changed.")), details=facts)
        return await self._save(request.member, chosen)

    @form_of("set")
    async def _submit(self, submission: SubmissionContext) -> Reply | Form:
        _check_platform(submission.member)
        stored = await self._store.find(submission.author.principal)
        chosen, errors = _parse(stored.chosen, submission.fields)
        if errors:
            return _form(submission.fields, errors)
        return await self._save(submission.member, chosen)

    @verb("clear", "delete what you have chosen", who=RequiredRole.EVERYONE, aliases=("delete", "reset"))
    async def _clear(self, request: CommandContext) -> Reply:
        _check_platform(request.member)
        await self._store.choose(request.author.principal, Locale())
        return Reply(_("What you had chosen is deleted. Your platform says your language and time zone again."))

    async def _save(self, member: Member, chosen: Locale) -> Reply:
        principal = member.author.principal
        await self._store.choose(principal, chosen)
        stored = await self._store.find(principal)
        before = current_language()
        with use_locale(chosen):
            reply = self._reply(_("Saved. It counts from now on."), member, stored)
            if current_language() == before:
                return reply
            # It is shown outside of this block, in the language before.
            return replace(reply, details=tuple((str(name), value) for name, value in reply.details))

    def _reply(self, text: str, member: Member, stored: UserLocale) -> Reply:
        language = f"{language_name(current_language())} ({current_language()})"
        reported = Locale(member.language or stored.told_language, member.time_zone or "")
        clear = (ReplyAction(_("Delete"), ("preferences", "clear")),) if stored.chosen != Locale() else ()
        return Reply(
            text,
            details=(
                (gettext_lazy("language"), f"{language}, {_source(stored.chosen.language, reported.language)}"),
                (
                    gettext_lazy("time zone"),
                    f"{format_time_zone()}, {_source(stored.chosen.time_zone, reported.time_zone)}",
                ),
                (gettext_lazy("local time"), format_moment(self._clock())),
            ),
            actions=(ReplyAction(_("Change"), ("preferences", "set")), *clear),
            data={
                "language": current_language(),
                "timeZone": format_time_zone(),
                "chosen": {"language": stored.chosen.language, "timeZone": stored.chosen.time_zone},
            },
        )


def _check_platform(member: Member) -> None:
    if member.author.platform == CONSOLE:
        raise CommandRejected(NOT_IN_A_TERMINAL)


def _source(chosen: str, reported: str) -> str:
    if chosen:
        return _("chosen by you")
    return _("from your account") if reported else _("of this place or of the bot")


def _parse(current: Locale, fields: Mapping[str, str]) -> tuple[Locale, dict[str, str]]:
    """Return what a user chooses, and errors by field. An absent field is unchanged, an empty one chooses nothing."""
    language, time_zone, errors = current.language, current.time_zone, dict[str, str]()
    try:
        language = parse_language(fields.get("language", language).strip())
    except ValueError as error:
        errors["language"] = str(error)
    try:
        time_zone = parse_time_zone(fields.get("timezone", time_zone).strip())
    except ValueError as error:
        errors["timezone"] = str(error)
    return Locale(language, time_zone), errors


def _form(values: Mapping[str, str], errors: Mapping[str, str]) -> Form:
    fields = (
        Field(
            "language",
            _("Language"),
            FieldKind.CHOICE,
            _("empty for that of your account"),
            choices=installed_languages(),
        ),
        Field("timezone", _("Time zone"), hint=_("such as Asia/Tokyo; empty for that of your account"), longest=60),
    )
    return Form(
        "preferences set",
        _("Your language and time zone"),
        tuple(replace(field, value=values.get(field.name, ""), error=errors.get(field.name, "")) for field in fields),
        instead="/preferences set --language TAG --timezone ZONE",
    )
