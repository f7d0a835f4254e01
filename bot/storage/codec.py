"""JSON codec of stored values.

Every body carries a version, `v`, because turns can wait across an upgrade. The bytes of images and files are stored by
`files`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements, OnTimeout
from bot.domain.approvals import ApprovalPolicy
from bot.domain.completions import StopReason, Usage
from bot.domain.conversations import Attachment
from bot.domain.flows import Words
from bot.domain.grants import GrantUse
from bot.domain.messages import (
    FilePart,
    ImageAudience,
    ImagePart,
    Message,
    MessageRole,
    Part,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
)
from bot.domain.policies import StoredPolicyResult
from bot.domain.secret_detection import StoredSecret
from bot.domain.secrets import SecretSpan
from bot.domain.sources import OtherSource, PersonSource, Source, Sources, ToolSource
from bot.domain.turns import CallOrigin, ModelStep, ToolRef, ToolStep, TurnInput

Body = dict[str, Any]

VERSION = 1
_COUNTS = tuple(field.name for field in dataclasses.fields(Usage))


def question_body(question: TurnInput) -> Body:
    """Encode a turn's input."""
    return {
        "v": VERSION,
        "text": question.text,
        "attachments": [
            [attachment.id, attachment.name, attachment.mime_type, attachment.size]
            for attachment in question.attachments
        ],
        "context": list(question.context),
        "call": None if question.call is None else _part_body(question.call),
        "again": question.again,
    }


def read_question(body: Body) -> TurnInput:
    """Decode a turn's input."""
    return TurnInput(
        text=body["text"],
        attachments=tuple(Attachment(*attachment) for attachment in body["attachments"]),
        context=tuple(body["context"]),
        call=_read_hand_call(body["call"]),
        again=body["again"],
    )


def _read_hand_call(body: Body | None) -> ToolCall | None:
    if body is None:
        return None
    call = _read_part(body)
    assert isinstance(call, ToolCall)
    return call


def encode_reply(step: ModelStep) -> Body:
    """Encode a model's reply."""
    return {
        "v": VERSION,
        "role": step.message.role.value,
        "parts": [_part_body(part) for part in step.message.parts],
        "metadata": dict(step.message.provider_metadata),
        "stop": step.stop.value,
        "usage": [getattr(step.usage, name) for name in _COUNTS],
        "notes": list(step.notes),
        "model": step.model,
        "sources": sources_body(step.sources),
    }


def decode_reply(n: int, body: Body) -> ModelStep:
    """Decode a model's reply."""
    return ModelStep(
        n=n,
        message=Message(MessageRole(body["role"]), tuple(_read_part(part) for part in body["parts"]), body["metadata"]),
        stop=StopReason(body["stop"]),
        usage=Usage(*body["usage"]),
        notes=tuple(body["notes"]),
        model=body["model"],
        sources=read_sources(body["sources"]),
    )


def sources_body(sources: Sources) -> list[Any]:
    """Encode the sources of a text."""
    return [_source_body(source) for source in sources]


def _source_body(source: Source) -> Any:
    match source:
        case OtherSource():
            return source.value
        case PersonSource(principal):
            return {"person": principal}
        case ToolSource():
            return [source.server, source.tool, source.server_id, source.definition, source.place]


def read_sources(body: list[Any]) -> Sources:
    """Decode the sources of a text. An unknown source, written by a later release, counts as an unknown result."""
    return tuple(map(_read_source, body))


def _read_source(body: Any) -> Source:
    match body:
        case list():
            return ToolSource(*body)
        case {"person": str(principal)}:
            return PersonSource(principal)
        case _:
            return OtherSource(body) if body in list(OtherSource) else OtherSource.RESULT


def encode_call(step: ToolStep) -> Body:
    """Encode a call without its result and approval, which have their own columns."""
    return {
        "v": VERSION,
        "call": _part_body(step.call),
        "origin": step.origin.value,
        "tool": None if step.tool is None else dataclasses.asdict(step.tool),
        "grant": None if step.grant is None else dataclasses.asdict(step.grant),
        "ruling": None if step.ruling is None else _ruling_body(step.ruling),
    }


def _ruling_body(ruling: StoredPolicyResult) -> Body:
    return {
        "policy": ruling.policy.value,
        "rule": ruling.rule,
        "words": ruling.words,
        "why": ruling.why,
        "taint": ruling.taint.value,
    }


def read_ruling(body: Body) -> StoredPolicyResult | None:
    """Decode the ruling of a call, `None` if no rule was evaluated."""
    ruling = body["ruling"]
    if ruling is None:
        return None
    policy, taint = ApprovalPolicy(ruling["policy"]), Words(ruling["taint"])
    return StoredPolicyResult(policy, ruling["rule"], ruling["words"], ruling["why"], taint)


def terms_body(terms: ApprovalRequirements) -> Body | None:
    """Encode approval requirements, `None` without any."""
    if terms == NO_TERMS:
        return None
    return {
        "v": VERSION,
        "approvers": [sorted(approver) for approver in terms.approvers],
        "four_eyes": terms.four_eyes,
        "quorum": terms.quorum,
        "expires": terms.expires,
        "on_timeout": terms.on_timeout.value if terms.on_timeout else None,
        "remind": terms.remind,
        "deliver": sorted(terms.deliver),
    }


def read_terms(body: Body | None) -> ApprovalRequirements:
    """Decode approval requirements."""
    if body is None:
        return NO_TERMS
    return ApprovalRequirements(
        approvers=tuple(frozenset(approver) for approver in body["approvers"]),
        four_eyes=body["four_eyes"],
        quorum=body["quorum"],
        expires=body["expires"],
        on_timeout=OnTimeout(body["on_timeout"]) if body["on_timeout"] else None,
        remind=body["remind"],
        deliver=frozenset(body["deliver"]),
    )


def secrets_body(secrets: Iterable[StoredSecret]) -> list[Body] | None:
    """Encode the positions of stored secrets in a call's arguments, `None` without any."""
    return [
        {
            "path": list(secret.path),
            "start": secret.span.start,
            "end": secret.span.end,
            "label": secret.span.label,
            "in_key": secret.in_key,
        }
        for secret in secrets
    ] or None


def read_secrets(bodies: Sequence[Body] | None) -> tuple[StoredSecret, ...]:
    """Return where stored secrets are in a call's arguments."""
    return tuple(
        StoredSecret(tuple(body["path"]), SecretSpan(body["start"], body["end"], body["label"]), body["in_key"])
        for body in bodies or ()
    )


def read_grant(body: Body) -> GrantUse | None:
    """Decode the grant that a call used, `None` if it used none."""
    grant = body["grant"]
    return None if grant is None else GrantUse(**grant)


def decode_call(body: Body) -> tuple[ToolCall, ToolRef | None, CallOrigin]:
    """Decode a call."""
    call = _read_part(body["call"])
    assert isinstance(call, ToolCall)
    tool = None if body["tool"] is None else ToolRef(**body["tool"])
    return call, tool, CallOrigin(body["origin"])


def result_body(result: ToolResult) -> Body:
    """Encode a tool's result."""
    return {"v": VERSION, **_part_body(result)}


def read_result(body: Body | None) -> ToolResult | None:
    """Decode a tool's result, `None` if there is none."""
    if body is None:
        return None
    result = _read_part(body)
    assert isinstance(result, ToolResult)
    return result


def _part_body(part: Part) -> Body:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart() | FilePart():
            raise TypeError(f"the bytes of {part.name!r} do not belong into a body")
        case StoredFile(file_id, mime_type, name, size, readers):
            return {
                "type": "kept",
                "id": file_id,
                "mime": mime_type,
                "name": name,
                "size": size,
                "readers": readers.value,
            }
        case ToolCall(call_id, name, arguments, unreadable):
            return {
                "type": "call",
                "id": call_id,
                "name": name,
                "arguments": dict(arguments),
                "unreadable": unreadable,
            }
        case ToolResult(call_id, parts, is_error, structured):
            return {
                "type": "result",
                "id": call_id,
                "parts": [_part_body(part) for part in parts],
                "is_error": is_error,
                "structured": structured,
                "own": part.own,
            }


def _read_part(body: Body) -> Part:
    match body["type"]:
        case "text":
            return TextPart(body["text"])
        case "kept":
            return StoredFile(body["id"], body["mime"], body["name"], body["size"], ImageAudience(body["readers"]))
        case "call":
            return ToolCall(body["id"], body["name"], body["arguments"], body["unreadable"])
        case "result":
            parts = tuple(_read_part(part) for part in body["parts"])
            assert all(isinstance(part, TextPart | StoredFile) for part in parts)
            structured, own = body["structured"], body["own"]
            return ToolResult(body["id"], parts, body["is_error"], structured, own=own)  # type: ignore[arg-type]
        case other:
            raise ValueError(f"a part of type {other!r} was written by a later release")
