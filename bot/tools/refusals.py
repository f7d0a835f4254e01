"""An HTTP answer that carries no result, in the MCP library's words for one: `calls` knows what they mean.

Called by the transports that are our own.
"""

from __future__ import annotations

import httpx2
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, ErrorData
from pydantic import BaseModel, ValidationError

from bot.tools import attempts

NOT_RPC = "its answer is not JSON-RPC 2.0"
"""Why an answer is not there, as a part of a sentence."""
STAND_IN = ErrorData(code=INTERNAL_ERROR, message="Server returned an error response")


class _Body(BaseModel):
    error: ErrorData


def refusal(response: httpx2.Response | None) -> ErrorData | None:
    """Why a request failed, None if it did not. An error of the server's own counts more than the status it came with.
    No response means that the connection broke.
    """
    attempt = attempts.current()
    if response is None or attempt.failure:
        return ErrorData(code=CONNECTION_CLOSED, message=attempt.failure or "the connection broke")
    if response.is_success:
        return None
    try:
        return _Body.model_validate_json(response.content).error
    except ValidationError:
        if response.status_code == 404:
            return ErrorData(code=METHOD_NOT_FOUND, message="Not Found")
        return STAND_IN
