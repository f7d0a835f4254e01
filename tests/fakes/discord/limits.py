"""Limits of the real Discord that a test may want smaller. Fixed ones stand where they are checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Limits:
    """Seconds of the clock, bytes, counts."""

    answer_within: float = 3
    """Seconds until an unanswered interaction has failed and its token is void."""
    token_lifetime: float = 900
    followups_outside: int = 5
    """Follow-ups of one interaction in a guild without the app, if its user has installed the app."""
    attachment_size: int = 10 * 1024 * 1024
    request_size: int = 25 * 1024 * 1024
    old_after: float = 3600
    old_edits: int = 3
    """Edits of messages older than `old_after` that a channel takes within `old_edit_window`; reported only."""
    old_edit_window: float = 20
    nonce_lifetime: float = 300
    resume_within: float = 180
    """Seconds in which a session can be resumed; not documented."""
    identifies_a_day: int = 1000
    identify_every: float = 0
    """Seconds between two IDENTIFYs of a bucket; an earlier one gets an invalid session. Discord has 5; 0 lifts it."""
    max_concurrency: int = 1
    """Buckets of IDENTIFYs; a shard's is the rest of its number."""
    shards: int = 1
    """Recommended number of shards."""
    fewest_shards: int = 1
    """With fewer shards no session begins (4011)."""
    commands_a_day: int = 200
    """Number of new commands that may be registered; counted for all guilds together."""
    gateway_sends: int = 120
    """Number of events that one connection may send within 60 seconds."""
    heartbeat: float = 41.25
    typing: float = 10
