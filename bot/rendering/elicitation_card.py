"""Card and form of an elicitation.

The card is for everyone in the conversation. So it has only the domain of a page to visit, not its address, which the
user gets in private. The platform chooses keys and buttons.

The form has a field for each property of the schema. Choices are shown by their titles and sent by their values, in
each form that the protocol permits (client/elicitation, "Requested schema"). Defaults are filled in. The engine
validates the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from bot.domain.commands import ActionStyle, Field, ReplyAction
from bot.domain.elicitations import (
    EXPIRED_REASON,
    Elicitation,
    ElicitationAction,
    ElicitationMode,
    ElicitationRequest,
    FormMode,
    UrlMode,
    mentions_secret,
)
from bot.domain.secrets import redact_secrets
from bot.domain.turns import ToolStep, TurnView
from bot.i18n import _, gettext_lazy, ngettext
from bot.rendering.argument_fields import ArgumentField, argument_form, read_arguments
from bot.rendering.text_safety import is_lookalike, show_invisible, single_line, strip_control

MESSAGE_LIMIT = 300
MESSAGE_LINES = 6
FIELD_LIMIT = 60
NO_NAME = gettext_lazy("(no name)")
CARD_FIELDS = 10
LIKE_ANOTHER = gettext_lazy(
    "This domain is written in letters that can look like others: make sure that it is the one you know."
)
NO_SECRETS = gettext_lazy("Do not type a password, a code or a key: no server may ask for one here.")
NOT_NEEDED = gettext_lazy("Withdrawn: the server needs no answer any more")
FORM_FIELDS = 24
TITLE_LIMIT = 75
SHOWN = 10
"""Number of choices in a hint."""
_FORMATS = {
    "email": gettext_lazy("an email address"),
    "uri": gettext_lazy("a web address"),
    "date": gettext_lazy("a date such as 2026-11-22"),
    "date-time": gettext_lazy("a date and time such as 2026-11-22T14:30:00Z"),
}


ANSWER, CONFIRM, DECLINE = "answer-server", "confirm-server", "decline-server"
VISIT, VISITED = "visit-server", "visited-server"
"""Commands of the buttons: open the form, send one without fields, decline; show the link, confirm the visit."""


@dataclass(frozen=True, slots=True)
class ElicitationCard:
    """Card of an elicitation. All text is safe as plain text. `message` is the server's, perhaps shortened, and may
    have several lines. `fields` are the requested fields of a form, `domain` is the destination of a link: one of them
    is empty. `expires_in` is in seconds, `expires_at` epoch seconds. An open card has offers, a settled one an outcome.
    """

    elicitation_id: str
    title: str
    message: str
    server: str
    tool: str
    fields: tuple[str, ...]
    domain: str
    warning: str
    outcome: str
    offers: tuple[ReplyAction, ...]
    expires_in: float | None
    expires_at: float | None


def elicitation_card(step: ToolStep, elicitation: Elicitation, view: TurnView) -> ElicitationCard:
    """Return the card of an elicitation."""
    mode = elicitation.question.ask
    server = server_name(step)
    is_open = elicitation.open and not (step.status.ended or view.turn.status.ended)
    text = strip_control(elicitation.question.message).strip()
    beginning = "\n".join(text[:MESSAGE_LIMIT].split("\n")[:MESSAGE_LINES])
    return ElicitationCard(
        elicitation_id=elicitation.id,
        title=_("{server} asks for an answer", server=server)
        if isinstance(mode, FormMode)
        else _("{server} wants a page visited", server=server),
        message=(text if beginning == text else f"{beginning.rstrip()}…"),
        server=server,
        tool=single_line(step.tool.name if step.tool else step.call.name, FIELD_LIMIT),
        fields=requested_fields(mode),
        domain=domain_of(mode),
        warning=warning_text(elicitation.question),
        outcome="" if is_open else outcome_text(elicitation),
        offers=_offers(elicitation) if is_open else (),
        expires_in=elicitation.expires_in,
        expires_at=elicitation.expires_at,
    )


def server_name(step: ToolStep) -> str:
    """Return the name of the elicitation's server."""
    return (single_line(step.tool.server, FIELD_LIMIT) if step.tool else "") or _("The server")


def outcome_text(elicitation: Elicitation) -> str:
    """Return the result of a closed elicitation, one line."""
    by = single_line(elicitation.answered_by, FIELD_LIMIT)
    reason = single_line(elicitation.reason, 200).rstrip(".")
    match elicitation.reply.action if elicitation.reply is not None else ElicitationAction.CANCEL:
        case ElicitationAction.ACCEPT:
            return _accepted(elicitation.question.ask, by)
        case ElicitationAction.DECLINE if by:
            return _("Declined by {name}", name=by)
        case ElicitationAction.DECLINE:
            return _("Declined. {reason}", reason=reason) if reason else _("Declined")
        case ElicitationAction.CANCEL if by:
            return _("Left unanswered by {name}", name=by)
        case ElicitationAction.CANCEL if reason == EXPIRED_REASON.rstrip("."):
            return str(EXPIRED_REASON).rstrip(".。")
        case ElicitationAction.CANCEL:
            return _("Withdrawn: {reason}", reason=reason) if reason else str(NOT_NEEDED)


def _accepted(mode: ElicitationMode, name: str) -> str:
    if isinstance(mode, UrlMode):
        return _("Visited by {name}", name=name) if name else _("Visited")
    return _("Answered by {name}", name=name) if name else _("Answered")


def requested_fields(mode: ElicitationMode) -> tuple[str, ...]:
    """Return the titles of the form's fields; empty for a link."""
    match mode:
        case FormMode(schema):
            properties = schema.get("properties")
            properties = properties if isinstance(properties, Mapping) else {}
            titles = [field_title(str(name), about) for name, about in properties.items()]
            more = len(titles) - CARD_FIELDS
            return (*titles[:CARD_FIELDS], *([ngettext("{n} more", "{n} more", more)] if more > 0 else []))
        case UrlMode():
            return ()


def field_title(name: str, schema: object) -> str:
    """Return the title of a field from its schema, or its name."""
    title = schema.get("title") if isinstance(schema, Mapping) else None
    titled = single_line(show_invisible(title), FIELD_LIMIT) if isinstance(title, str) else ""
    return titled or single_line(show_invisible(name), FIELD_LIMIT) or str(NO_NAME)


def domain_of(mode: ElicitationMode) -> str:
    """Return the domain of the link, with the port if one is named; empty for a form."""
    if not isinstance(mode, UrlMode):
        return ""
    try:
        return single_line(show_invisible(urlsplit(mode.url).netloc.rpartition("@")[2]), 260)
    except ValueError:
        return ""


def warning_text(question: ElicitationRequest) -> str:
    """Return a warning sentence; empty for most elicitations."""
    match question.ask:
        case UrlMode(url):
            return str(LIKE_ANOTHER) if is_lookalike(url) else ""
        case FormMode():
            return str(NO_SECRETS) if mentions_secret(question) else ""


def _offers(elicitation: Elicitation) -> tuple[ReplyAction, ...]:
    decline = ReplyAction(_("Decline"), (DECLINE, elicitation.id))
    is_form = isinstance(elicitation.question.ask, FormMode)
    label, word = (_("Answer…"), ANSWER) if is_form else (_("Show the link…"), VISIT)
    return ReplyAction(label, (word, elicitation.id), ActionStyle.PRIMARY), decline


Choices = Mapping[str, Any]
"""Values by the titles they are shown with."""


@dataclass(frozen=True, slots=True)
class ElicitationForm:
    """Fields of a form in order. `left` are the titles of fields without room."""

    fields: tuple[Field, ...]
    left: tuple[str, ...]
    _made: tuple[ArgumentField, ...]
    _choices: Mapping[str, Choices]
    _defaults: Mapping[str, Any]
    _empty: tuple[str, ...]
    """Fields that are an empty text without an answer."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values that can be filled in, in order."""
        return tuple(form_field.argument for form_field in self._made)

    def field_of(self, name: str) -> str:
        """Return the field of this name, or the first one."""
        names = (form_field.field.name for form_field in self._made if form_field.argument == name)
        return next(names, self.fields[0].name if self.fields else "")

    def parse_answers(self, answers: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values to send, and the errors by field. A field without an answer has its default."""
        form = argument_form({}, {})
        worded = {
            form_field.field.name: self._spell_answer(form_field.argument, answers[form_field.field.name])
            for form_field in self._made
            if form_field.field.name in answers
        }
        values, errors = read_arguments(replace(form, fields=self._made), self._defaults, worded)
        sent: dict[str, Any] = dict.fromkeys(self._empty, "")
        for name, value in values.items():
            try:
                sent[name] = _choose_value(value, self._choices[name]) if name in self._choices else value
            except ValueError as error:
                errors.setdefault(self.field_of(name), str(error))
        return sent, errors

    def _spell_answer(self, name: str, answer: str) -> str:
        """Return the typed text; for a choice, the choice's own spelling."""
        typed = answer.strip().lower()
        choices = self._choices.get(name, {})
        # Titles first, because the title of one choice may be the value of another.
        by_title = [title for title in choices if typed == title.lower()]
        by_value = [title for title, value in choices.items() if typed == str(value).lower()]
        return next(iter((*by_title, *by_value)), answer)


def elicitation_form(schema: Mapping[str, Any]) -> ElicitationForm:
    """Return the form for a schema, filled in with its defaults."""
    declared = schema.get("properties")
    properties = {str(name): about for name, about in declared.items()} if isinstance(declared, Mapping) else {}
    choices = {name: listed for name, about in properties.items() if (listed := _choices(about))}
    displayed = {name: _displayed_schema(about, choices.get(name, {})) for name, about in properties.items()}
    defaults = {
        name: _displayed_default(about["default"], choices.get(name, {}))
        for name, about in properties.items()
        if isinstance(about, Mapping) and _usable(about.get("default"))
    }
    # An empty text would stand in its field as a pair of quotes.
    empty = tuple(name for name, default in defaults.items() if default == "")
    defaults = {name: default for name, default in defaults.items() if name not in empty}
    form = argument_form({"properties": displayed, "required": schema.get("required", [])}, defaults, FORM_FIELDS)
    form_fields = tuple(
        replace(field, field=replace(field.field, label=field_title(field.argument, properties[field.argument])))
        for field in form.fields
    )
    offered = {form_field.argument for form_field in form_fields}
    left = tuple(field_title(name, about) for name, about in properties.items() if name not in offered)
    # The user has not seen hidden defaults, so they are not sent: the server knows its own defaults.
    form_defaults = {name: default for name, default in defaults.items() if name in offered}
    empty = tuple(name for name in empty if name in offered)
    return ElicitationForm(
        tuple(form_field.field for form_field in form_fields), left, form_fields, choices, form_defaults, empty
    )


def _choices(schema: Any) -> Choices:
    """Return the choices of a field, for one choice or several; empty for free text."""
    if not isinstance(schema, Mapping):
        return {}
    if schema.get("type") == "array":
        return _choices(schema.get("items"))
    for options in (schema.get("oneOf"), schema.get("anyOf")):
        if isinstance(options, list) and all(isinstance(option, Mapping) and "const" in option for option in options):
            return _by_title([option["const"] for option in options], [option.get("title") for option in options])
    values, named = schema.get("enum"), schema.get("enumNames")  # titles before 2025-11-25
    if isinstance(values, list):
        none = [None] * len(values)
        return _by_title(values, named if isinstance(named, list) and len(named) == len(values) else none)
    return {}


def _by_title(values: Sequence[Any], titles: Sequence[Any]) -> Choices:
    """Return values by titles; by themselves where two titles would look the same."""
    distinct = [
        single_line(show_invisible(title), TITLE_LIMIT) if isinstance(title, str) and title.strip() else _itself(value)
        for title, value in zip(titles, values, strict=True)
    ]
    if len({name.lower() for name in distinct}) < len(distinct):
        distinct = [_itself(value) for value in values]
    return dict(zip(distinct, values, strict=True))


def _itself(value: Any) -> str:
    return single_line(show_invisible(str(value)), TITLE_LIMIT)


def _displayed_schema(schema: Any, choices: Choices) -> Mapping[str, Any]:
    """Return the schema of a field in the form that argument fields use: choices are texts."""
    if not isinstance(schema, Mapping):
        return {}
    several = schema.get("type") == "array"
    about = " · ".join(filter(None, (_bounds(schema, choices, several=several), str(schema.get("description") or ""))))
    if several and (choices or isinstance(schema.get("items"), Mapping)):
        return {"type": "array", "items": {"type": "string"}, "description": about}
    if choices:
        return {"type": "string", "enum": list(choices), "description": about}
    return {**schema, "description": about}


def _bounds(schema: Mapping[str, Any], choices: Choices, *, several: bool) -> str:
    """Return the limits of a value in a few words."""
    if choices and (several or len(choices) > SHOWN):
        listed, more = list(choices)[:SHOWN], len(choices) - SHOWN
        if more > 0:
            listed.append(ngettext("… {n} more", "… {n} more", more))
        joined = ", ".join(listed)
        return _("any of: {choices}", choices=joined) if several else _("one of: {choices}", choices=joined)
    if (kind := _FORMATS.get(str(schema.get("format")))) is not None:
        return str(kind)
    match schema:
        case {"minimum": int() | float() as low, "maximum": int() | float() as high}:
            return _("{low} to {high}", low=low, high=high)
        case {"minimum": int() | float() as low}:
            return _("at least {low}", low=low)
        case {"maximum": int() | float() as high}:
            return _("at most {high}", high=high)
        case _:
            return ""


def _choose_value(value: Any, choices: Choices) -> Any:
    """Return the value of a title, or of several. Raises ValueError with the choices."""
    if isinstance(value, list | tuple):
        chosen = [_choose_value(item, choices) for item in value]
        return [item for number, item in enumerate(chosen) if item not in chosen[:number]]
    if value in choices:
        return choices[value]
    by_word = {word.lower(): item for title, item in choices.items() for word in (_itself(item), title)}
    if isinstance(value, str) and value.lower() in by_word:
        return by_word[value.lower()]
    listed = ", ".join(list(choices)[: 2 * SHOWN])
    if len(choices) > 2 * SHOWN:
        raise ValueError(_("One of: {choices}, …", choices=listed))
    raise ValueError(_("One of: {choices}.", choices=listed))


def _displayed_default(value: Any, choices: Choices) -> Any:
    if isinstance(value, list):
        return [_displayed_default(item, choices) for item in value]
    return next((title for title, item in choices.items() if item == value), value)


def _usable(default: Any) -> bool:
    """Return True if a default can be filled in: flat values and lists of texts, without masked parts, because those
    cannot be seen.
    """
    if redact_secrets("", default) != default:
        return False
    if isinstance(default, list):
        return all(isinstance(item, str) for item in default)
    return isinstance(default, str | bool | int | float)
