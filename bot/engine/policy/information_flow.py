"""Information flow: calls that need an approval because of the text that the model has read (ADR 17), and earlier
results that another author may read.

A conversation is tainted by the text in its prompts; every reply and summary stores its sources. A reply may repeat
anything in its prompt, so a turn in the history adds the sources of all its replies, inherited ones included. The table
applies to calls that a rule lets run:

| the call                                            | own  | shared | strangers |
|-----------------------------------------------------|------|--------|-----------|
| reads, only the server learns of it                 | runs | runs   | runs      |
| reads, the world may learn of it                    | runs | asks*  | asks*     |
| adds, closed                                        | runs | runs** | runs**    |
| adds, for the team                                  | runs | runs** | asks      |
| changes or deletes, closed or for the team          | runs | runs** | asks      |
| adds, changes or deletes, for the world             | runs | asks   | asks      |

*  if anything was read from another server. Questions of other users do not count as read.
** asks if a tool of the server returns text that counts as own: the written text would come back as own.

A tool of an untrusted server without settings counts as one that reads: its effects are unknown, and its server knows
its own text.

A read with arguments that the author has written carries nothing that was read: it runs.

A call counts as closed if the author has named all its recipients, or if it names none.

All users of a conversation may know its messages. But if a rule denies a tool to an author, or the present profile does
not enable it, the model does not get the tool's results on their behalf, not even as a page of a page: otherwise
`read_result` would bypass the rule (`ResultVisibility`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, Member
from bot.domain.flows import OtherSource, PersonSource, Sends, Source, Sources, ToolSource, Words
from bot.domain.policies import PolicyResult, Rule, is_for_server, is_for_tool
from bot.domain.tools import Tool, ToolSet
from bot.domain.turns import HistorySummary, StepStatus, ToolStep, TurnInput, TurnRecord
from bot.engine.policy.evaluation import PolicyRequest, evaluate
from bot.engine.policy.ordinary_arguments import leaf_texts
from bot.engine.policy.rules import Rules
from bot.engine.prompt.messages import ANSWERED, READ_RESULT, READ_THREAD, Address, parse_address
from bot.i18n import _, format_list, gettext_lazy
from bot.ports import TurnHistory

Known = Mapping[Address, ToolStep]
"""Calls of a conversation, by result location."""
_MOST_NAMED = 3
_SENDS_OUT = gettext_lazy("It would send something to people outside the team.")
_SENDS_ROUND = gettext_lazy("It would send something to other people of the team.")
_DESTROYS = gettext_lazy("It may change or delete something.")
_RETURNS_AS_OWN = gettext_lazy("It would keep something that counts as your own words when it is read again.")
_QUESTIONS = gettext_lazy("other people's questions here")
_WRITERS = {Words.SHARED: gettext_lazy("other people of the team"), Words.STRANGERS: gettext_lazy("strangers")}
_HELD = (ApprovalPolicy.ALWAYS_ALLOW, ApprovalPolicy.ASK_USER)
NO_TOOLS = ToolSet()
_BEFORE = r"(?:(?<![\w@.+-])|(?<=[<\s][@#])|(?<=<@!)|(?<=[ぁ-ん]))"
_AFTER = r"(?:(?![\w@]|[.+-]\w)|(?=[にへを宛様]|さん|まで|と[@#<]))"
"""Ends of a name. In Japanese, particles that mark a recipient follow without a blank."""
_UNMISTAKABLE = re.compile(
    r"""
    [#@<]\S+ | \S+@\S+ | [a-z][\w+.-]*:\S+ | \S*\w\.[^\W\d]{2,}\S*    # #name, mention, mail address, URL, host
  | \S*\d{7,}\S* | (?=\S*\d)(?=\S*[^\W\d])\S{6,}                    # ids
    """,
    re.VERBOSE,
)
"""A recipient that is no word of a sentence."""
_IN_QUOTES = (
    r"(?:(?<!\w)(?:[\"\uff02'`“”„\u201a»\u2039\u2018\u2019❝]|«\s?){}[,.]?(?:[\"\uff02'`“”\u203a«\u2018\u2019❞]|\s?»)(?!\w)"
    r"|[「『｢《〈【﹁〝]{}[」』｣》〉】﹂〟])"
)
"""A word in quotes. Brackets need no blank around them, because their sides differ."""
GONE = gettext_lazy("The result of this page no longer exists.")
_DENIED = "A policy forbids {} to the present author, so its results are not shown."
_NOT_ENABLED = "{} is not enabled in this conversation's profile, so its results are not shown here."


def known_calls(turns: Iterable[TurnRecord]) -> Known:
    """Return the calls of these turns."""
    return {(record.turn.seq, step.n): step for record in turns for step in record.calls}


def sources_of_turn(record: TurnRecord, known: Known) -> Sources:
    """Return the sources that a turn adds to prompts with it."""
    asker = PersonSource(record.turn.author.principal)
    replies = (source for reply in record.replies for source in reply.sources)
    return merge_sources([asker], replies, _of_question(record.turn.question), _of_calls(record, known))


def sources_of_prompt(record: TurnRecord, history: Iterable[Source], known: Known) -> Sources:
    """Return the sources of a prompt for this turn. `history` are those of the earlier turns in it."""
    return merge_sources(history, _of_question(record.turn.question), _of_calls(record, known))


def sources_of_summary(summary: HistorySummary | None) -> Sources:
    """Return the sources of a summary: empty without text."""
    return () if summary is None or not summary.text else summary.sources


def merge_sources(*sources: Iterable[Source]) -> Sources:
    """Return all sources without repetition."""
    return tuple(dict.fromkeys(source for group in sources for source in group))


def _of_question(question: TurnInput) -> Iterator[Source]:
    if question.attachments:
        yield OtherSource.ATTACHMENT
    if question.context:
        yield OtherSource.THREAD


def _of_calls(record: TurnRecord, known: Known) -> Iterator[Source]:
    known = {**known, **known_calls([record])}
    for step in record.calls:
        # A result without content may stand in the answer, as the output of a call that a user has run by hand.
        is_shown = record.turn.content_deleted or (step.result is not None and not step.result.own)
        has_server_text = step.status in ANSWERED and is_shown
        source = _of_call(record.turn.seq, step, known) if has_server_text else None
        if source is not None:
            yield source


def _of_call(seq: int, step: ToolStep, known: Known) -> Source | None:
    """Return the source of a call's result; None if the bot wrote it. A page of a result has that result's source."""
    address: Address = (seq, step.n)
    while step.call.name == READ_RESULT:
        target = parse_address(step.call)
        target_step = None if target is None or target >= address else known.get(target)
        if target is None or target_step is None:
            return OtherSource.RESULT
        address, step = target, target_step
    tool = step.tool
    if tool is None or tool.is_builtin:
        return OtherSource.THREAD if step.call.name == READ_THREAD else None
    return ToolSource(tool.server, tool.name, tool.server_id, tool.definition, tool.place)


@dataclass(frozen=True, slots=True)
class TaintSource:
    """A source of text in the prompt: its label, its server and its trust. `is_read` is False for messages of the
    conversation, because everyone in it knows them.
    """

    label: str
    words: Words
    server_id: str = ""
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint of a completion's calls, by the `sources` in its prompt. `author_texts` are the author's own texts,
    `offered` the tools of the workspace.
    """

    sources: tuple[TaintSource, ...] = ()
    author_texts: tuple[str, ...] = ()
    offered: ToolSet = ToolSet()

    @property
    def words(self) -> Words:
        """Lowest trust of all sources."""
        return max((source.words for source in self.sources), key=lambda words: words.rank, default=Words.OWN)

    def apply_policy(self, tool: Tool, arguments: Mapping[str, Any], result: PolicyResult) -> PolicyResult:
        """Return the result with the taint applied: ask instead of run, or ask for this reason, too."""
        reason = self.approval_reason(tool, arguments) if result.stored.policy in _HELD else ""
        if not reason:
            return result
        is_allowed = result.stored.policy is ApprovalPolicy.ALWAYS_ALLOW
        return replace(
            result,
            stored=replace(
                result.stored,
                policy=ApprovalPolicy.ASK_USER,
                why=" ".join(filter(None, (result.stored.why, reason))),
                taint=self.words,
                sources=_names([source for source in self.sources if source.words is not Words.OWN]),
                is_allowed=is_allowed,
            ),
            requirements=result.requirements.restrict_by_taint(is_allowed=is_allowed),
        )

    def approval_reason(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the reason why a call that a rule lets run needs an approval; empty if it runs."""
        if self.words is Words.OWN:
            return ""
        sends = sends_of(tool, arguments, self.author_texts)
        known = tool.trusted or tool.flow.sends is not None
        if tool.read_only and _repeats_author(tool, arguments, self.author_texts):
            risk = ""
        elif tool.read_only or not known:
            risk = self._read_risk(tool, sends)
        elif _has_named_recipients(tool, arguments, self.author_texts):
            risk = _DESTROYS if self.words is Words.STRANGERS and tool.destructive else ""
        else:
            risk = self._write_risk(tool, sends)
        if not risk:
            return ""
        causes = [source for source in self.sources if source.words is self.words]
        cause = _(
            "The model has read {sources}, where {writers} may have written.",
            sources=_names(causes),
            writers=_WRITERS[self.words],
        )
        return f"{risk} {cause}"

    def _read_risk(self, tool: Tool, sends: Sends) -> str:
        """Return the risk of a read-only call. Tools with unknown effects count as such, because their servers would
        otherwise ask at every second call.
        """
        other_servers = [source for source in self.sources if source.is_read and source.server_id != tool.server_id]
        if not other_servers or sends is not Sends.WORLD:
            return ""
        sources = _names(other_servers)
        return _("Its arguments could carry what was read from {sources} to the outside.", sources=sources)

    def _write_risk(self, tool: Tool, sends: Sends) -> str:
        """Return the risk of any other call."""
        strangers = self.words is Words.STRANGERS
        match sends:
            case Sends.WORLD:
                return _SENDS_OUT
            case Sends.TEAM if strangers:
                return _SENDS_ROUND
            case _ if strangers and tool.destructive:
                return _DESTROYS
            case _:
                others = (each for each in self.offered.callable_tools if each.server_id == tool.server_id)
                returns_as_own = any(other.read_only and other.words is Words.OWN for other in others)
                return _RETURNS_AS_OWN if returns_as_own else ""


UNTAINTED = Taint()


def taint_sources(sources: Iterable[Source], offered: ToolSet, asker: str) -> tuple[TaintSource, ...]:
    """Return the taint sources for the principal `asker`, by the present tools. A missing or changed tool may have
    returned anything.
    """
    return tuple(dict.fromkeys(_taint_source(source, offered) for source in sources if source != PersonSource(asker)))


def asks_after(tool: Tool, arguments: Mapping[str, Any], offered: ToolSet = NO_TOOLS) -> tuple[Words, ...]:
    """Return the authors after whose words a call that a rule lets run needs an approval."""
    other_server = f"!{tool.server_id}"
    return tuple(
        words
        for words in Words
        if Taint((TaintSource("", words, other_server),), offered=offered).approval_reason(tool, arguments)
    )


def except_after(phrase: str, words: Collection[Words]) -> str:
    """Return the phrase for a call that runs, with the words after which it does not."""
    if not words:
        return phrase
    if Words.SHARED in words:
        return _("{phrase}, except after words of others", phrase=phrase)
    return _("{phrase}, except after words of strangers", phrase=phrase)


def sends_of(tool: Tool, arguments: Mapping[str, Any], author_texts: Sequence[str] = ()) -> Sends:
    """Return the furthest audience of a call. `author_texts` may name its recipients."""
    return Sends.CLOSED if _has_named_recipients(tool, arguments, author_texts) else tool.sends_with(arguments)


def _has_named_recipients(tool: Tool, arguments: Mapping[str, Any], author_texts: Sequence[str]) -> bool:
    known, names = tool.properties, tool.flow.recipients
    if not names or not all(name in known for name in names):
        return False
    recipients = [leaf for name in names for leaf in leaf_texts(arguments.get(name, _default(known[name])))]
    return all(_is_named(recipient, author_texts) for recipient in recipients)


def _repeats_author(tool: Tool, arguments: Mapping[str, Any], author_texts: Sequence[str]) -> bool:
    """Return True if each argument is a text of the author, its default, true, false or null: such a call carries
    nothing that was read. Lists and objects do not count, because their order and length may carry something.
    """
    known = tool.properties
    for name, value in arguments.items():
        if value is None or isinstance(value, bool) or (name in known and value == _default(known[name])):
            continue
        # Case-sensitive: upper and lower case may carry something, too.
        if not isinstance(value, str | int | float) or not _contains_word(str(value), author_texts):
            return False
    return bool(arguments)


def _taint_source(source: Source, offered: ToolSet) -> TaintSource:
    match source:
        case OtherSource():
            return TaintSource(source.label, Words.STRANGERS)
        case PersonSource():
            return TaintSource(_QUESTIONS, Words.SHARED, is_read=False)
        case ToolSource(server, name, server_id):
            tool = next(
                (tool for tool in offered.callable_tools if (tool.server_id, tool.original_name) == (server_id, name)),
                None,
            )
            is_same = tool is not None and (source.definition, source.place) == (tool.definition, tool.place)
            return TaintSource(server, tool.words if tool is not None and is_same else Words.STRANGERS, server_id)


def _default(schema: object) -> object:
    return schema.get("default") if isinstance(schema, Mapping) else None


def _is_named(recipient: str, author_texts: Sequence[str]) -> bool:
    """Return True if a text contains the recipient as a whole: an address, an id or a mention as such, any other word
    as `#name`, `@name` or in quotes, because a sentence may contain it by chance.
    """
    # Not casefold(): it turns the "ß" of a host name into "ss", which is another host.
    wanted, texts = recipient.strip().lower(), [text.lower() for text in author_texts]
    if _UNMISTAKABLE.fullmatch(wanted):
        return _contains_word(wanted, texts)
    word = re.escape(wanted)
    marked = re.compile(rf"(?<![^\Wぁ-ん]|[#@])[#\uff03@\uff20]{word}{_AFTER}(?!/\w)|{_IN_QUOTES.format(word, word)}")
    return bool(wanted) and any(map(marked.search, texts))


def _contains_word(wanted: str, author_texts: Sequence[str]) -> bool:
    return bool(wanted) and any(re.search(rf"{_BEFORE}{re.escape(wanted)}{_AFTER}", text) for text in author_texts)


def _names(sources: Sequence[TaintSource]) -> str:
    labels = list(dict.fromkeys(source.label for source in sources))
    more = len(labels) - _MOST_NAMED
    shown = labels if more <= 0 else [*labels[:_MOST_NAMED], _("{more} more", more=more)]
    return format_list([str(label) for label in shown])


@dataclass(frozen=True, slots=True)
class ResultVisibility:
    """Visibility of results for `author` (`member`) in the conversation of `here`. `rules` are the rules to check,
    `offered` the tools of the workspace.
    """

    here: Rules
    rules: tuple[Rule, ...]
    offered: ToolSet
    author: Author
    member: Member | None
    log: TurnHistory

    def with_everybody(self) -> ResultVisibility:
        """Return the visibility for all later authors: a tool denied to some counts as denied."""
        strictest = (replace(rule, askers=frozenset(), profile="") if _denies(rule) else rule for rule in self.rules)
        return replace(self, rules=tuple(rule for rule in strictest if not (rule.askers or rule.profile)))

    @property
    def shows_everything(self) -> bool:
        """True if a quick check finds nothing denied to anyone."""
        denies = self._denies_by_default or any(map(_denies, self.rules))
        return self.here.profile.enables_everything and not denies

    async def rejection_reason(self, seq: int, step: ToolStep) -> str:
        """Return the reason why the result of a call in turn `seq` is not visible; empty if it is."""
        if self.shows_everything:
            return ""
        address: Address = (seq, step.n)
        while step.call.name == READ_RESULT and step.status is StepStatus.DONE:
            target = parse_address(step.call)
            is_earlier = target is not None and target < address
            target_step = await self.log.get_call(self.here.conversation, *target) if target and is_earlier else None
            if target is None or target_step is None:
                return GONE
            address, step = target, target_step
        called = step.tool
        if called is None or called.is_builtin or step.status not in ANSWERED or step.result is None:
            return ""
        # A missing tool keeps only its name and server.
        missing = Tool(step.call.name, called.server, called.name, called.title, server_id=called.server_id)
        place = (called.server_id, called.name)
        offered = self.offered.callable_tools
        tool = next((tool for tool in offered if (tool.server_id, tool.original_name) == place), missing)
        if not self.here.profile.enables(tool):
            return _NOT_ENABLED.format(step.call.name)
        return _DENIED.format(step.call.name) if self._is_denied(step, tool) else ""

    def _is_denied(self, step: ToolStep, tool: Tool) -> bool:
        # Filtered first because a conversation may have thousands of results.
        rules = [
            rule
            for rule in self.rules
            if (self._denies_by_default or _denies(rule)) and is_for_server(rule, tool) and is_for_tool(rule, tool)
        ]
        if not rules and not self._denies_by_default:
            return False
        request = PolicyRequest(
            tool, self.here.conversation, step.call.arguments, self.author, self.member, self.here.profile
        )
        result = evaluate(rules, request, self.here.file.default, self.here.reviewed)
        return result.stored.policy is ApprovalPolicy.ALWAYS_DENY

    @property
    def _denies_by_default(self) -> bool:
        return self.here.file.default is ApprovalPolicy.ALWAYS_DENY


def _denies(rule: Rule) -> bool:
    return rule.policy is ApprovalPolicy.ALWAYS_DENY
