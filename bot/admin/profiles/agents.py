"""`/agents`, the agents of a place, and `/ask NAME …`.

An agent is a profile that is bound to a place, or bound by name (`/profile bind NAME --agent`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from bot.admin.command import CommandContext, NotFoundRejection, SubmissionContext, Verbs, form_of, verb
from bot.admin.servers.directory import ServerVerbs
from bot.admin.text_format import page_of, page_rows
from bot.domain.agents import PLACE_NAME, Addressed, AgentRef, Agents
from bot.domain.commands import (
    ActionStyle,
    CompletionSource,
    Field,
    FieldKind,
    Form,
    Parameter,
    Reply,
    ReplyAction,
    RequiredRole,
    Table,
)
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.profiles import Profile
from bot.i18n import _, gettext_lazy

LONGEST_QUESTION = 3_000
MOST_CHOICES = 25
"""Choices of a field, which is Discord's limit."""
_LONGEST_LABEL = 30
_HEADINGS = (gettext_lazy("agent"), gettext_lazy("what it does"), gettext_lazy("servers"), gettext_lazy("is asked"))


class AskAgent(Verbs):
    """The verb of `/ask`. Without a name or a question, a form asks for them."""

    @verb(
        "",
        "ask an agent by name; /agents lists them",
        (
            Parameter("agent", "the agent's name", required=True, completes=CompletionSource.AGENTS, metavar="NAME"),
            Parameter("question", "what you want to know, or to have done", required=True, metavar="TEXT"),
        ),
        who=RequiredRole.EVERYONE,
        free=True,
        raw=True,
    )
    async def _ask(self, request: CommandContext) -> Reply | Form:
        agents = self._dependencies.administration.rule_book.agents(request.conversation)
        addressed = _read_words(agents, request.words)
        if addressed is None and any(word.strip() for word in request.words):
            return _unknown_name(agents, request.words)
        if not agents.here:
            return _no_agents_reply()
        if addressed is None or not addressed.text:
            return _form(agents, addressed)
        return _asking(addressed, request.conversation, request.author)

    @form_of("")
    async def _fill(self, submission: SubmissionContext) -> Reply | Form:
        agents = self._dependencies.administration.rule_book.agents(submission.conversation)
        agent = agents.find(submission.fields.get("agent", ""))
        if agent is None:
            raise NotFoundRejection(_("This agent cannot be asked here any more. `/agents` lists those that can."))
        addressed = Addressed(agent, submission.fields.get("question", "").strip())
        if addressed.text:
            return _asking(addressed, submission.conversation, submission.author)
        return _form(agents, addressed, submission.errors or {"question": _("Something is needed here.")})


class AgentList(ServerVerbs):
    """The verb of `/agents`."""

    @verb("", "who can be asked by name here, and what each does", who=RequiredRole.EVERYONE, reads=True)
    async def _list(self, request: CommandContext) -> Reply:
        administration = self._dependencies.administration
        profiles = administration.rule_book.agent_profiles(request.conversation)
        place = administration.rules(request.conversation).profile
        if not profiles:
            return _no_agents_reply(admin=self._dependencies.rights.administers(request.member))
        names = {server.id: server.name for server in await self._directory.all(request.conversation)}
        page = page_rows(profiles, request.arguments.page)
        rows = tuple(
            (
                profile.name,
                profile.about,
                _server_names(profile, names),
                _("without a name, too") if profile.id == place.id else _("by name"),
            )
            for profile in page
        )
        return Reply(
            _(
                "Agents here · {count}. `/ask NAME …` asks one, and so does a message that begins with “as NAME”. A "
                "thread goes on with the one that was named last; “as default” goes back.",
                count=len(profiles),
            ),
            Table(_HEADINGS, rows),
            actions=tuple(_ask_action(profile) for profile in page),
            page=page_of(request.arguments.page, len(profiles), ("agents",)),
            data={
                "agents": [
                    {"id": profile.id, "name": profile.name, "about": profile.about, "default": profile.id == place.id}
                    for profile in profiles
                ]
            },
        )


def _read_words(agents: Agents, words: Sequence[str]) -> Addressed | None:
    if words and (agent := agents.find(words[0])) is not None:
        return Addressed(agent, " ".join(words[1:]).strip())
    return agents.read_name(" ".join(words).strip())


def _asking(addressed: Addressed, conversation: ConversationKey, author: Author) -> Reply:
    message = InboundMessage(
        (f"ask:{secrets.token_hex(16)}",), conversation, author, addressed.text, agent=addressed.agent
    )
    return Reply(
        _("Asking…"),
        details=((gettext_lazy("agent"), addressed.agent.name or PLACE_NAME),),
        message=message,
        private=False,
    )


def _unknown_name(agents: Agents, words: Sequence[str]) -> Reply:
    """Return the reply to a name without an agent. Names are in the details, because admins choose them."""
    if not agents.here:
        return _no_agents_reply()
    text = " ".join(words).strip()
    first, _blank, rest = text.partition(" ")
    meant = agents.closest(words[0]) or agents.closest(first)
    facts: list[tuple[str, str]] = [(gettext_lazy("here are"), ", ".join(agents.names))]
    facts += [(gettext_lazy("did you mean"), meant.name)] if meant is not None else []
    question = " ".join(words[1:]).strip() or rest
    actions = (_ask_action(meant, question),) if meant is not None else ()
    return Reply(_("There is no agent of that name here."), details=tuple(facts), failed=True, actions=actions)


def _no_agents_reply(*, admin: bool = False) -> Reply:
    text = _("Nobody can be asked by name here: the bot answers by itself.")
    how = _("`/profile bind NAME --agent` lets a profile be asked by name in this channel.") if admin else ""
    return Reply(" ".join(filter(None, (text, how))))


def _form(agents: Agents, addressed: Addressed | None, errors: Mapping[str, str] | None = None) -> Form:
    errors = errors or {}
    names = agents.names[:MOST_CHOICES]
    agent = (addressed.agent.name if addressed is not None else "") or names[0]
    question = addressed.text if addressed is not None else ""
    return Form(
        "ask :",
        _("Ask an agent"),
        (
            Field("agent", _("Agent"), FieldKind.CHOICE, required=True, choices=names, value=agent),
            Field(
                "question",
                _("Question"),
                FieldKind.LINES,
                required=True,
                value=question,
                error=errors.get("question", ""),
                longest=LONGEST_QUESTION,
            ),
        ),
        submit=_("Ask"),
        instead="/ask NAME TEXT",
    )


def _ask_action(agent: Profile | AgentRef, question: str = "") -> ReplyAction:
    label = agent.name if len(agent.name) <= _LONGEST_LABEL else f"{agent.name[: _LONGEST_LABEL - 1]}…"
    words = ("ask", agent.name, question) if question else ("ask", agent.name)
    return ReplyAction(_("Ask {name}", name=label), words, ActionStyle.PLAIN)


def _server_names(profile: Profile, names: Mapping[str, str]) -> str:
    if profile.servers is None:
        return _("all")
    return ", ".join(sorted(names[server_id] for server_id in profile.servers if server_id in names)) or _("none")
