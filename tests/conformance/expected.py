"""Scenarios of the conformance suite that fail, and why. One that is here and passes fails the run, so that it goes."""

from __future__ import annotations

Expected = dict[str, dict[str, str]]
"""Reasons by revision of the specification and name of the scenario."""
EXPECTED: Expected = {"2025-11-25": {}, "2026-07-28": {}}
"""Those of our client layer."""

_TOOLS_ALONE = "the gateway offers tools alone"
_RESOURCES = ("resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read")
_PROMPTS = (
    "prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource",
    "prompts-get-with-image",
)  # fmt: skip
_OF_SERVERS = "questions of servers go to people, not to the agent"
_NAMES = "not scored; the suite looks for a tool by a name that the adapter does not map in lists"
_INPUT_REQUIRED = (
    "basic-elicitation", "basic-sampling", "basic-list-roots", "request-state", "multiple-input-requests",
    "multi-round", "non-tool-request", "result-type", "tampered-state", "capability-check",
)  # fmt: skip
EXPECTED_OF_GATEWAY: Expected = {
    "2025-11-25": {
        **dict.fromkeys((*_RESOURCES, *_PROMPTS, "resources-subscribe", "resources-unsubscribe"), _TOOLS_ALONE),
        **dict.fromkeys(("completion-complete", "logging-set-level", "tools-call-with-logging"), _TOOLS_ALONE),
        "json-schema-2020-12": _NAMES,
        "server-sse-polling": "an answer that a client has missed is fetched by the same call",
        **dict.fromkeys(
            ("tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
             "elicitation-sep1330-enums"), _OF_SERVERS,
        ),
    },
    "2026-07-28": {
        **dict.fromkeys((*_RESOURCES, *_PROMPTS, "completion-complete", "caching"), _TOOLS_ALONE),
        "server-stateless": "a server's need of sampling is between it and the bot",
        "json-schema-2020-12": _NAMES,
        "http-custom-header-server-validation": _NAMES,
        **dict.fromkeys((f"input-required-result-{name}" for name in _INPUT_REQUIRED), _OF_SERVERS),
    },
}  # fmt: skip
"""Those of `/mcp`."""
