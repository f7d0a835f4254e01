"""Languages: the texts that people see, in the language of the person or of the place.

A text for people is written in English where it is used and marked for the catalogues:

    _("Approved by {name}", name=who)                        translated now, into the current language
    ngettext("{n} call", "{n} calls", n)                     by the plural rules of the language; `n` is a value
    pgettext("policy", "ask")                                a short word that needs a context
    gettext_lazy("The server {name} is off.", name=slug)     translated when it is shown
    join_lazy(cause, advice)                                 sentences, translated when they are shown
    english(text)                                            the English of a lazy text, for a model or a row

Values go in by name, so that a translation can place them; they are never parsed as a format. Module constants, and
errors that are raised below the chat, take `gettext_lazy`, `ngettext_lazy` and `pgettext_lazy`. Texts for models, logs
and the audit log stay English and are not marked.

The current language and time zone belong to the running task: `with use_language("ja"):`. The chat layer, the web
application and the terminal set them for each viewer. Outside of them texts are English and times are in UTC.

Catalogues: `locales/<language>/LC_MESSAGES/countersign.po`. `make catalogs` brings them up to date.
"""

from bot.i18n.catalogs import DEFAULT_LANGUAGE, installed_languages, language_name, resolve_language
from bot.i18n.context import current_language, current_time_zone, use_language, use_time_zone
from bot.i18n.formats import (
    format_alternatives,
    format_date,
    format_datetime,
    format_list,
    format_number,
    format_time,
    format_time_zone,
    script_name,
)
from bot.i18n.texts import (
    LazyText,
    english,
    format_enumeration,
    gettext,
    gettext_lazy,
    in_all_languages,
    join_lazy,
    ngettext,
    ngettext_lazy,
    pgettext,
    pgettext_lazy,
)

_ = gettext

__all__ = [
    "DEFAULT_LANGUAGE",
    "LazyText",
    "_",
    "current_language",
    "current_time_zone",
    "english",
    "format_alternatives",
    "format_date",
    "format_datetime",
    "format_enumeration",
    "format_list",
    "format_number",
    "format_time",
    "format_time_zone",
    "gettext",
    "gettext_lazy",
    "in_all_languages",
    "installed_languages",
    "join_lazy",
    "language_name",
    "ngettext",
    "ngettext_lazy",
    "pgettext",
    "pgettext_lazy",
    "resolve_language",
    "script_name",
    "use_language",
    "use_time_zone",
]
