"""Model selection. The choice is validated at once; libraries are loaded on first use."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.domain.metrics import MetricSink, null_sink
from bot.errors import ModelRejected, SettingsError
from bot.llm.fallback import FallbackModel
from bot.llm.instrumentation import InstrumentedModel
from bot.llm.model_availability import DiscoveredWindow, ListsModels
from bot.llm.providers import PROVIDERS, Access, Provider
from bot.ports import LanguageModel
from bot.setting_errors import format_value
from bot.settings import Settings

_BEHIND_A_BLANK = re.compile(r"[\s;|]+([A-Za-z-]+)(?::|$)")
"""Another model name after a blank, `;` or `|`: a missing comma."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A module in `bot.llm` with the fields of its Config. `name` is the display name; `others` are the fallbacks in
    order.
    """

    name: str
    module: str
    config: dict[str, Any] = field(default_factory=dict, repr=False)
    others: tuple[ModelChoice, ...] = ()

    @property
    def label(self) -> str:
        """Display names of the model and its fallbacks."""
        return ", else ".join(self.names)

    @property
    def all(self) -> tuple[ModelChoice, ...]:
        """The model and its fallbacks."""
        return (self, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the model and its fallbacks."""
        return tuple(choice.name for choice in self.all)

    @property
    def window(self) -> int | None:
        """Context window in tokens, None if the settings do not say."""
        return self.config.get("context_tokens")

    def create(self) -> LanguageModel:
        """Load the provider module and build the model."""
        provider = importlib.import_module(f"bot.llm.{self.module}")
        model: LanguageModel = provider.create(provider.Config(**self.config))
        return model


class Models:
    """All models of the process, each built on first use. `own` is the bot's model; `observe` receives metrics of
    requests.
    """

    def __init__(self, own: ModelChoice, choose: Callable[[str], ModelChoice], observe: MetricSink = null_sink) -> None:
        self._own = own
        self._choose = choose
        self._observe = observe
        self._built: dict[str, LanguageModel] = {}
        self._building = asyncio.Lock()

    async def get(self, name: str) -> LanguageModel:
        """Return the model `provider:name`, the bot's own if the name is empty. Raises ModelRejected if it cannot be
        used.
        """
        if name not in self._built:
            async with self._building:
                if name not in self._built:
                    choice = self._select(name) if name else self._own
                    self._built[name] = await self._build(choice)
        return self._built[name]

    async def _build(self, choice: ModelChoice) -> LanguageModel:
        models: dict[str, LanguageModel] = {}
        for candidate in choice.all:
            model = await asyncio.to_thread(candidate.create)
            if candidate.window is None and isinstance(model, ListsModels) and model.tells_window:
                model = DiscoveredWindow(model, candidate.name)
            models[candidate.name] = InstrumentedModel(model, candidate.name, self._observe)
        return FallbackModel(models) if choice.others else models[choice.name]

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(model.close() for model in self._built.values()))

    def _select(self, name: str) -> ModelChoice:
        try:
            return self._choose(name)
        except SettingsError as error:
            raise ModelRejected(error.cause, f"name another model in the profile, or {error.fix}") from error


def select_model(settings: Settings, wanted: str = "") -> ModelChoice:
    """Select the model by `--model`, BOT_MODEL or the API key that is set. A comma-separated list gives the model and
    its fallbacks. Raises SettingsError.
    """
    written = wanted or settings.bot_model or _by_key(settings)
    names = [name for name in written.split(",") if name.strip()]
    if not names:
        raise SettingsError(f"{written!r} names no model.", f"set BOT_MODEL (or --model) to {_all()}")
    chosen = {choice.name: choice for choice in (_one(settings, name, names) for name in names)}
    first, *others = chosen.values()
    return replace(first, others=tuple(others))


def _one(settings: Settings, wanted: str, names: Sequence[str]) -> ModelChoice:
    """Parse one name of a model out of `names`. Raises SettingsError."""
    written, _, name = (part.strip() for part in wanted.partition(":"))
    provider = PROVIDERS.get(written.lower())
    if provider is None:
        close = difflib.get_close_matches(written.lower(), PROVIDERS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise SettingsError(
            f"There is no model provider called {format_value(written)}.{hint}",
            f"set BOT_MODEL (or --model) to {_all()}",
        )
    another = _BEHIND_A_BLANK.search(name)
    if another and another[1].lower() in PROVIDERS:
        raise SettingsError(f"{wanted.strip()!r} are several models.", "write a comma between each two of them")
    if not provider.variables:
        return ModelChoice(written.lower(), provider.module(Access()))
    return _hosted_choice(written.lower(), provider, name or provider.model, settings, names)


def is_demo(settings: Settings) -> bool:
    """Return True if the demo model alone answers, because it was chosen or because there is no key."""
    return (settings.bot_model or _by_key(settings)).strip(", ").lower() == "demo"


def _by_key(settings: Settings) -> str:
    if settings.anthropic_api_key:
        return "anthropic"
    return "openai" if settings.openai_api_key else "demo"


def _all() -> str:
    """Return one sentence that lists the accepted forms of a model name."""
    *others, last = (name for name in PROVIDERS if name != "demo")
    return (
        f"demo, or to PROVIDER:NAME with {', '.join(others)} or {last} as the provider, and a comma between each two"
        " of several"
    )


def _hosted_choice(label: str, provider: Provider, name: str, settings: Settings, names: Sequence[str]) -> ModelChoice:
    key, address = settings.access_to_models(provider.variables)
    access = Access(key, address, settings.openai_api)
    if not name:
        raise SettingsError(f"{label} has many models.", f"name one of them: {label}:NAME in BOT_MODEL (or --model)")
    if provider.lacks_key(access):
        way_out = "use --model demo" if len(names) == 1 else f"leave {label}:{name} out of the list of models"
        raise SettingsError(
            f"The model {label}:{name} needs a key.",
            f"set {provider.variables}_API_KEY in the environment or in .env, or {way_out}",
        )
    config = {
        "model": name,
        "api_key": key,
        "base_url": address or provider.address,
        "variables": provider.variables,
        "context_tokens": settings.window_of(f"{label}:{name}"),
        **provider.more,
    }
    return ModelChoice(f"{label}:{name}", provider.module(access), config)
