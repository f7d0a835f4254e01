"""Source of the files: the service, or the labeled sample in its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mcp_servers.weather.jma_json import Unreadable
from mcp_servers.weather.sample_data import Sample
from mcp_servers.weather.service import NotThere, Service, ServiceProblem
from mcp_servers.weather.settings import SampleMode

PATIENCE = 2.0
"""Time limit of one query in seconds if a sample may be given instead."""

PATIENCE_WITHOUT_SAMPLE = 15.0
"""Time limit of one query in seconds without a sample."""

OUTAGE_MEMORY = 60.0
"""Seconds without requests to the service after a failure, so that later queries do not wait for it."""

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Read]):
    """Parsed file. `sample_reason` is the reason for sample data; empty for real data."""

    value: Read
    sample_reason: str = ""


@dataclass(frozen=True, slots=True)
class _Outage:
    reason: str
    until: float


class Question:
    """Files of one query, which share one time limit."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ends = source.now() + source.patience

    async def read(self, paths: Sequence[str], parse: Callable[[object], Read]) -> Reading[Read]:
        """Return the first of `paths` that exists, parsed. Raises ServiceProblem if sample data is not allowed."""
        return await self._source.read(paths, parse, self._ends)


class Source:
    """Service and sample, with a memory of outages."""

    def __init__(
        self, service: Service, sample: Sample, mode: SampleMode, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._sample = sample
        self._mode = mode
        self._outage: _Outage | None = None
        self.now = now
        self.patience = PATIENCE if mode is SampleMode.AUTO else PATIENCE_WITHOUT_SAMPLE

    def question(self) -> Question:
        """Begin a query; its time limit starts now."""
        return Question(self)

    async def read(self, paths: Sequence[str], parse: Callable[[object], Read], ends: float) -> Reading[Read]:
        """Read a file by the time `ends`. Raises ServiceProblem if sample data is not allowed."""
        match self._mode:
            case SampleMode.ALWAYS:
                return self._from_sample(paths, parse, "WEATHER_SAMPLE is set to always")
            case SampleMode.NEVER:
                return await self._from_service(paths, parse, ends)
            case SampleMode.AUTO:
                if self._outage is not None and self.now() < self._outage.until:
                    return self._from_sample(paths, parse, self._outage.reason)
                try:
                    reading = await self._from_service(paths, parse, ends)
                except NotThere as problem:
                    return self._from_sample(paths, parse, str(problem))
                except ServiceProblem as problem:
                    self._outage = _Outage(str(problem), self.now() + OUTAGE_MEMORY)
                    return self._from_sample(paths, parse, str(problem))
                self._outage = None
                return reading

    async def close(self) -> None:
        """Close the connection."""
        await self._service.close()

    async def _from_service(self, paths: Sequence[str], parse: Callable[[object], Read], ends: float) -> Reading[Read]:
        *others, last = paths
        for path in others:
            try:
                return Reading(await self._fetch(path, parse, ends))
            except NotThere:
                continue
        return Reading(await self._fetch(last, parse, ends))

    async def _fetch(self, path: str, parse: Callable[[object], Read], ends: float) -> Read:
        value = await self._service.fetch(path, ends - self.now(), self.patience)
        try:
            return parse(value)
        except Unreadable as problem:
            raise ServiceProblem(str(problem)) from problem

    def _from_sample(self, paths: Sequence[str], parse: Callable[[object], Read], reason: str) -> Reading[Read]:
        return Reading(parse(self._sample.read(paths[0])), reason)
