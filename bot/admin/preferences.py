"""`/preferences`: the language and the time zone of the user, where the platform tells none or another is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.admin.command import CommandContext, CommandRejected, SubmissionContext, Verbs, form_of, option, verb
from bot.admin.profiles.fields import parse_language, parse_time_zone
from bot.admin.resource import Resource, ResourceField
from bot.admin.text_format import error_reply, format_moment
from bot.domain.commands import CompletionSource, FieldKind, Form, Reply, ReplyAction, RequiredRole
from bot.domain.conversations import CONSOLE, Member
from bot.domain.locales import Locale, UserLocale, use_locale
from bot.i18n import _, current_language, format_time_zone, gettext_lazy, installed_languages, language_name

NOT_IN_A_TERMINAL = gettext_lazy("In a terminal, `LC_ALL` or `LANG` and `TZ` say your language and time zone.")
# fmt: off
LOCALE = Resource((
    ResourceField(
        "language", lambda text, _scope: parse_language(text),
        option("language", "your language", choices=installed_languages(), metavar="TAG"),
        1, "Language", "empty for that of your account", kind=FieldKind.CHOICE, choices=installed_languages(),
    ),
    ResourceField(
        "timezone", lambda text, _scope: parse_time_zone(text),
        option(
            "timezone", "your time zone, such as Asia/Tokyo", completes=CompletionSource.TIME_ZONES, metavar="ZONE"
        ),
        1, "Time zone", "such as Asia/Tokyo; empty for that of your account", longest=60, attribute="time_zone",
    ),
))
# fmt: on


class PreferenceVerbs(Verbs):
    """Verbs of `/preferences`."""

    @verb(
        "show",
        "your language and time zone, and where they come from",
        who=RequiredRole.EVERYONE,
        aliases=("get",),
        reads=True,
    )
    async def _show(self, request: CommandContext) -> Reply:
        stored = await self._stored(request.member)
        return self._reply(_("Your language and time zone"), request.member, stored)

    @verb(
        "set",
        "choose your language and time zone; without options it asks",
        tuple(row.option for row in LOCALE.fields),
        who=RequiredRole.EVERYONE,
        aliases=("edit",),
    )
    async def _set(self, request: CommandContext) -> Reply | Form:
        stored = await self._stored(request.member)
        given = LOCALE.given(request.arguments)
        if not given:
            return _form(LOCALE.values(stored.chosen, None), {})
        chosen, errors = LOCALE.parse(stored.chosen, given, None)
        if errors:
            return replace(error_reply(_("Nothing was changed.")), details=LOCALE.option_errors(errors))
        return await self._save(request.member, chosen)

    @form_of("set")
    async def _submit(self, submission: SubmissionContext) -> Reply | Form:
        stored = await self._stored(submission.member)
        chosen, errors = LOCALE.parse(stored.chosen, submission.fields, None)
        if errors:
            return _form(submission.fields, errors)
        return await self._save(submission.member, chosen)

    @verb("clear", "delete what you have chosen", who=RequiredRole.EVERYONE, aliases=("delete", "reset"))
    async def _clear(self, request: CommandContext) -> Reply:
        await self._stored(request.member)
        await self._dependencies.stores.locales.choose(request.author.principal, Locale())
        return Reply(_("What you had chosen is deleted. Your platform says your language and time zone again."))

    async def _stored(self, member: Member) -> UserLocale:
        """Return what is known of the user. Raises CommandRejected in a terminal."""
        if member.author.platform == CONSOLE:
            raise CommandRejected(NOT_IN_A_TERMINAL)
        return await self._dependencies.stores.locales.find(member.author.principal)

    async def _save(self, member: Member, chosen: Locale) -> Reply:
        await self._dependencies.stores.locales.choose(member.author.principal, chosen)
        stored = await self._stored(member)
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
                (gettext_lazy("local time"), format_moment(self._dependencies.clock())),
            ),
            actions=(ReplyAction(_("Change"), ("preferences", "set")), *clear),
            data={
                "language": current_language(),
                "timeZone": format_time_zone(),
                "chosen": {"language": stored.chosen.language, "timeZone": stored.chosen.time_zone},
            },
        )


def _source(chosen: str, reported: str) -> str:
    if chosen:
        return _("chosen by you")
    return _("from your account") if reported else _("of this place or of the bot")


def _form(values: Mapping[str, str], errors: Mapping[str, str]) -> Form:
    return Form(
        "preferences set",
        _("Your language and time zone"),
        LOCALE.filled_step(1, values, errors),
        instead="/preferences set --language TAG --timezone ZONE",
    )
