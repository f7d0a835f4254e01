"""Model selection. The choice is validated at once; libraries are loaded on first use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace

from bot.errors import SettingsError
from bot.llm.models import ModelChoice
from bot.llm.providers import PROVIDERS, Access, Provider
from bot.settings import Settings, format_value

_BEHIND_A_BLANK = re.compile(r"[\s;|]+([A-Za-z-]+)(?::|$)")
"""Another model name after a blank, `;` or `|`: a missing comma."""


_BY_MODEL = {
    "context_tokens": "context_tokens",
    "max_tokens": "model_max_tokens",
    "reasoning": "model_reasoning",
    "images": "model_images",
}
"""Settings with patterns of models, by the field of a model's configuration."""


def select_model(settings: Settings, wanted: str = "") -> ModelChoice:
    """Select the model by `--model`, BOT_MODEL or the API key that is set. A comma-separated list gives the model and
    its fallbacks. Raises SettingsError.
    """
    written = wanted or settings.bot_model or _name_by_key(settings)
    names = [name for name in written.split(",") if name.strip()]
    if not names:
        raise SettingsError(f"{written!r} names no model.", f"set BOT_MODEL (or --model) to {_accepted_names()}")
    chosen = {choice.name: choice for choice in (_parse_choice(settings, name, names) for name in names)}
    first, *others = chosen.values()
    return replace(first, others=tuple(others))


def _parse_choice(settings: Settings, wanted: str, names: Sequence[str]) -> ModelChoice:
    """Parse one name of a model out of `names`. Raises SettingsError."""
    written, _, name = (part.strip() for part in wanted.partition(":"))
    provider = PROVIDERS.get(written.lower())
    if provider is None:
        close = difflib.get_close_matches(written.lower(), PROVIDERS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise SettingsError(
            f"There is no model provider called {format_value(written)}.{hint}",
            f"set BOT_MODEL (or --model) to {_accepted_names()}",
        )
    another = _BEHIND_A_BLANK.search(name)
    if another and another[1].lower() in PROVIDERS:
        raise SettingsError(f"{wanted.strip()!r} are several models.", "write a comma between each two of them")
    if not provider.variables:
        return ModelChoice(written.lower(), provider.module(Access()))
    return _hosted_choice(written.lower(), provider, name or provider.model, settings, names)


def is_demo(settings: Settings) -> bool:
    """Return True if the demo model alone answers, because it was chosen or because there is no key."""
    return (settings.bot_model or _name_by_key(settings)).strip(", ").lower() == "demo"


def _name_by_key(settings: Settings) -> str:
    if settings.anthropic_api_key:
        return "anthropic"
    return "openai" if settings.openai_api_key else "demo"


def _accepted_names() -> str:
    """Return one sentence that lists the accepted forms of a model name."""
    *others, last = (name for name in PROVIDERS if name != "demo")
    return (
        f"demo, or to PROVIDER:NAME with {', '.join(others)} or {last} as the provider, and a comma between each two"
        " of several"
    )


def _hosted_choice(label: str, provider: Provider, name: str, settings: Settings, names: Sequence[str]) -> ModelChoice:
    key, address = settings.access_to_models(provider.variables)
    if not name:
        raise SettingsError(f"{label} has many models.", f"name one of them: {label}:NAME in BOT_MODEL (or --model)")
    access = Access(key, address, settings.openai_api)
    if provider.lacks_key(access):
        way_out = "use --model demo" if len(names) == 1 else f"leave {label}:{name} out of the list of models"
        raise SettingsError(
            f"The model {label}:{name} needs a key.",
            f"set {provider.variables}_API_KEY in the environment or in .env, or {way_out}",
        )
    return hosted_choice(label, name, access, settings)


def hosted_choice(label: str, name: str, access: Access, settings: Settings) -> ModelChoice:
    """Return the choice of a provider's model with this key and address."""
    provider = PROVIDERS[label]
    config = {
        "model": name,
        "api_key": access.key,
        "base_url": access.address or provider.address,
        "variables": provider.variables,
        **{
            field: value
            for field, setting in _BY_MODEL.items()
            if (value := settings.of_model(setting, f"{label}:{name}")) is not None
        },
        **provider.more,
    }
    return ModelChoice(f"{label}:{name}", provider.module(access), config)
