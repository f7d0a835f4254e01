"""The step of `countersign setup model`: the language model that answers."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import replace

from bot.app.model_checks import check_service
from bot.app.models import hosted_choice, is_demo, select_model
from bot.app.setup.steps import Step, check_form
from bot.app.setup.values import Progress, SetupOptions, SetupValues, env_file
from bot.errors import SettingsError
from bot.examination import CheckSkipped
from bot.llm.models import ListsModels, ModelChoice
from bot.llm.providers import PROVIDERS, Access, Key
from bot.platforms.console.prompts import SetupTerminal

MAX_LISTED = 15
"""Models of a list to choose from; with more of them, the name is typed."""
_SERVER = "server"
_CHOICES = (
    ("anthropic", "Anthropic"),
    ("openai", "OpenAI"),
    ("openrouter", "OpenRouter"),
    ("ollama", "Ollama"),
    (_SERVER, "Another server that speaks OpenAI's protocol (vLLM, LM Studio, LiteLLM …)"),
    ("demo", "None yet: the demo model answers, without a key and without a service"),
)
_KEY_PAGES = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "openrouter": "https://openrouter.ai/settings/keys",
}
_KEY_ERRORS = (
    ("", "Nothing was entered.", "copy the key from the page of the provider"),
    ("xox[a-z]-.*|xapp-.*", "That is a token of Slack, not the key of a model.", "copy the key of the provider"),
    ("(?![!-~]+$).*", "The key has characters that no key has.", "copy it again, whole"),
)


def steps(values: SetupValues, progress: Progress, options: SetupOptions) -> Sequence[Step]:
    """Return the only step."""
    return [ModelStep(values, progress, options)]


class ModelStep(Step):
    """Provider, key and name of the model."""

    name, title = "model", "Language model"

    def __init__(self, values: SetupValues, progress: Progress, options: SetupOptions) -> None:
        self._values = values
        self._progress = progress
        self._options = options

    async def inspect(self) -> str:
        """Return the service's answer for the model that is set."""
        if is_demo(self._values.settings()) and not self._options.model:
            if self._values.get("BOT_MODEL") or self._progress.get("model") == "demo":
                return "The demo model answers. It needs no key, and no service."
            raise CheckSkipped("No model is set: the demo model answers.")
        choice = self._selected()
        check = await check_service(choice)
        if check.is_broken:
            raise SettingsError(f"{choice.label}: {check.detail}", str(check.fix))
        return f"{choice.label}: {check.detail}"

    async def guide(self) -> Sequence[str]:
        """Return the variables that set the model."""
        return [
            f"Write to {env_file()} one of:",
            "  BOT_MODEL=anthropic:NAME    ANTHROPIC_API_KEY=…   (keys: " + _KEY_PAGES["anthropic"] + ")",
            "  BOT_MODEL=openai:NAME       OPENAI_API_KEY=…      (keys: " + _KEY_PAGES["openai"] + ")",
            "  BOT_MODEL=openrouter:NAME   OPENROUTER_API_KEY=…  (keys: " + _KEY_PAGES["openrouter"] + ")",
            "  BOT_MODEL=ollama:NAME       OLLAMA_BASE_URL=" + str(PROVIDERS["ollama"].address),
            "  BOT_MODEL=openai:NAME       OPENAI_BASE_URL=http://HOST/v1   for another server with OpenAI's protocol",
            "  BOT_MODEL=demo              the demo model, without a key",
        ]

    async def apply(self) -> None:
        """Save the model of --model and the key of standard input if the service accepts them."""
        keys = {name: value for name, value in self._values.given.items() if name.endswith(("_API_KEY", "_BASE_URL"))}
        if not self._options.model and not keys:
            return
        if self._options.model != "demo":
            await self._require(self._selected())
        self._values.save({**({"BOT_MODEL": self._options.model} if self._options.model else {}), **keys})

    async def ask(self, terminal: SetupTerminal) -> None:
        """Ask for provider, key and name, and check each at once."""
        current = self._values.settings().bot_model.partition(":")[0]
        default = next((name for name, _label in _CHOICES if name == current), _CHOICES[0][0])
        chosen = await terminal.choose("Which provider do you use?", _CHOICES, default)
        if chosen == "demo":
            self._values.save({"BOT_MODEL": "demo"})
            self._progress.save(model="demo")
            terminal.report_done("The demo model answers. `countersign setup model` connects another one later.")
            return
        label = "openai" if chosen == _SERVER else chosen
        prefix = PROVIDERS[label].variables
        address = await self._ask_address(terminal, chosen, prefix)
        key = await self._ask_key(terminal, chosen, prefix)
        access = Access(key, address, self._values.settings().openai_api)
        name = await self._ask_name(terminal, label, access)
        await self._require(hosted_choice(label, name, access, self._values.settings()))
        wanted = {"BOT_MODEL": f"{label}:{name}", f"{prefix}_API_KEY": key, f"{prefix}_BASE_URL": address or ""}
        self._values.save({variable: value for variable, value in wanted.items() if value})
        self._progress.save(model="")
        terminal.report_done(f"{label}:{name} answers. It is in {env_file()}.")

    async def _ask_address(self, terminal: SetupTerminal, chosen: str, prefix: str) -> str | None:
        present = self._values.get(f"{prefix}_BASE_URL")
        if chosen not in (_SERVER, "ollama"):
            return present or None
        default = present or ("http://127.0.0.1:8000/v1" if chosen == _SERVER else str(PROVIDERS["ollama"].address))
        address = await terminal.ask("Address of the server", default)
        if not address.startswith(("http://", "https://")):
            raise SettingsError(
                "That is not the address of a server.", "write it whole, such as http://localhost:8000/v1"
            )
        is_usual = not present and address == PROVIDERS["ollama"].address
        return None if is_usual else address

    async def _ask_key(self, terminal: SetupTerminal, chosen: str, prefix: str) -> str:
        variable = f"{prefix}_API_KEY"
        present = self._values.get(variable)
        if present and await terminal.confirm(f"Use the {variable} in {self._values.origin(variable)}?"):
            return present
        if PROVIDERS["openai" if chosen == _SERVER else chosen].key is Key.OPTIONAL or chosen == _SERVER:
            if chosen == "ollama":
                return ""
            return await terminal.ask_secret("Key; Enter if the server needs none")
        terminal.say(f"Keys are made at {_KEY_PAGES[chosen]}")
        entered = await terminal.ask_secret(f"{dict(_CHOICES)[chosen]} key")
        check_form(entered, _KEY_ERRORS)
        if present and not await terminal.confirm(f"Replace the {variable} that {self._values.origin(variable)} has?"):
            raise SettingsError("The old key was kept.", "use it, or replace it")
        return entered

    async def _ask_name(self, terminal: SetupTerminal, label: str, access: Access) -> str:
        """Ask for one of the service's models. Raises ModelError if it does not accept the key."""
        provider = PROVIDERS[label]
        names = sorted(
            await self._names(hosted_choice(label, provider.model or "any", access, self._values.settings()))
        )
        present = self._values.settings().bot_model.partition(":")[2]
        default = next((name for name in (present, provider.model) if name in names), names[0] if names else "")
        if names and len(names) <= MAX_LISTED:
            return await terminal.choose("Which model?", [(name, name) for name in names], default)
        if names:
            terminal.say(f"The service has {len(names)} models.")
        while True:
            typed = await terminal.ask("Name of the model", default or provider.model)
            if typed and (not names or typed in names):
                return typed
            close = ", ".join(difflib.get_close_matches(typed, names, 5, 0.4) or names[:5])
            terminal.report_error(
                f"The service does not list {typed[:60]!r}.", f"write one of its names, such as {close}"
            )
            if await terminal.confirm("Use it anyway?", default=False):
                return typed

    async def _names(self, choice: ModelChoice) -> Sequence[str]:
        model = await asyncio.to_thread(choice.create)
        try:
            return await model.model_names() if isinstance(model, ListsModels) else ()
        finally:
            await model.close()

    def _selected(self) -> ModelChoice:
        """Return the model of --model or of the settings, with values that are not saved yet. Raises SettingsError."""
        settings = self._values.settings()
        wanted = self._options.model or settings.bot_model
        label, _colon, name = wanted.partition(":")
        provider = PROVIDERS.get(label)
        if not self._values.given or provider is None or not provider.variables or "," in wanted:
            return replace(select_model(settings, wanted), others=())
        key, address = (self._values.get(f"{provider.variables}_{ending}") for ending in ("API_KEY", "BASE_URL"))
        access = Access(key, address or None, settings.openai_api)
        if provider.lacks_key(access):
            raise SettingsError(f"The model {wanted} needs a key.", f"set {provider.variables}_API_KEY")
        return hosted_choice(label, name or provider.model, access, settings)

    async def _require(self, choice: ModelChoice) -> None:
        """Raise SettingsError if the service does not have the model, or does not accept the key."""
        check = await check_service(choice)
        if check.is_broken:
            raise SettingsError(str(check.detail), str(check.fix))
