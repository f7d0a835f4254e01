"""Faster polling of uvicorn in the process of the tests. Importing the module is enough.

uvicorn checks every 0.1 s if it should stop, and then waits as long again. Most tests of the HTTP API, of OAuth and of
remote servers would spend their time on that.
"""

from __future__ import annotations

import asyncio
import types

import uvicorn.server


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / 10)


vars(uvicorn.server)["asyncio"] = types.SimpleNamespace(**{**vars(asyncio), "sleep": _sleep})
