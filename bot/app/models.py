"""Which language model: chosen at once, so that a mistake is told at once; loaded when it is needed."""

from __future__ import annotations

import asyncio
import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from bot.domain.measurements import Observe, unobserved
from bot.errors import ModelRejected, SettingsError
from bot.llm.measured import MeasuredModel
from bot.ports import LanguageModel
from bot.settings import Settings

ANTHROPIC_DEFAULT = "claude-sonnet-5-5"
OPENAI_DEFAULT = "gpt-5.5"
_PROVIDERS = ("demo", "openai", "anthropic")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider's module in `bot.llm` and what its Config takes. `label` is how people know the model."""

    label: str
    module: str
    config: dict[str, Any] = field(default_factory=dict, repr=False)

    def create(self) -> LanguageModel:
        """Load the provider and build the model."""
        provider = importlib.import_module(f"bot.llm.{self.module}")
        model: LanguageModel = provider.create(provider.Config(**self.config))
        return model


class Models:
    """Every model that is used here, each built when it is first wanted. `own` is the bot's; `observe` counts what they
    are asked.
    """

    def __init__(self, own: ModelChoice, choose: Callable[[str], ModelChoice], observe: Observe = unobserved) -> None:
        self._own = own
        self._choose = choose
        self._observe = observe
        self._built: dict[str, LanguageModel] = {}
        self._building = asyncio.Lock()

    async def named(self, name: str) -> LanguageModel:
        """The model called `provider:name`, the bot's own if the name is empty. Raises ModelRejected if it cannot be
        used.
        """
        if name not in self._built:
            async with self._building:
                if name not in self._built:
                    choice = self._chosen(name) if name else self._own
                    built = await asyncio.to_thread(choice.create)
                    self._built[name] = MeasuredModel(built, choice.label, self._observe)
        return self._built[name]

    async def close(self) -> None:
        """Let go of all connections."""
        await asyncio.gather(*(model.close() for model in self._built.values()))

    def _chosen(self, name: str) -> ModelChoice:
        try:
            return self._choose(name)
        except SettingsError as error:
            raise ModelRejected(error.cause, f"name another model in the profile, or {error.fix}") from error


def choose_model(settings: Settings, wanted: str = "") -> ModelChoice:
    """The model by `--model`, by BOT_MODEL, or by the key that is present. Raises SettingsError."""
    written, _, name = (part.strip() for part in (wanted or settings.bot_model or _by_key(settings)).partition(":"))
    provider = written.lower()
    match provider:
        case "demo":
            return ModelChoice("demo", "demo")
        case "openai":
            # A compatible server on one's own machine needs no key, but the client insists on one.
            key = _plain(settings.openai_api_key) or ("none" if settings.openai_base_url else "")
            model = name or OPENAI_DEFAULT
            return _hosted(provider, "openai_chat", model, key, settings.openai_base_url)
        case "anthropic":
            key = _plain(settings.anthropic_api_key)
            model = name or ANTHROPIC_DEFAULT
            return _hosted(provider, "anthropic", model, key, settings.anthropic_base_url)
        case _:
            close = difflib.get_close_matches(provider, _PROVIDERS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise SettingsError(
                f"There is no model provider called {written!r}.{hint}",
                "set BOT_MODEL (or --model) to demo, openai:NAME or anthropic:NAME",
            )


def _by_key(settings: Settings) -> str:
    if settings.anthropic_api_key:
        return "anthropic"
    return "openai" if settings.openai_api_key else "demo"


def _hosted(provider: str, module: str, name: str, key: str, address: str | None) -> ModelChoice:
    if not key:
        raise SettingsError(
            f"The model {provider}:{name} needs a key.",
            f"set {provider.upper()}_API_KEY in the environment or in .env, or use --model demo",
        )
    return ModelChoice(f"{provider}:{name}", module, {"model": name, "api_key": key, "base_url": address})


def _plain(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
