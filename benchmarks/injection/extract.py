"""Export of AgentDojo's tasks as JSON, run in an environment that has agentdojo.

User tasks: prompt and calls of the ground truth with arguments, and whether the result would hold an injection.
Injection tasks: calls of the ground truth. Tools: their module.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

VERSION = "v1.2.2"
CANARY = "canary-5e0c7a"


def calls(suite: Any, task: Any, injections: dict[str, str]) -> list[dict[str, Any]]:
    """Run a task's ground truth with `injections` at every injection point. Return its calls."""
    environment = suite.load_and_inject_default_environment(injections)
    if hasattr(task, "init_environment"):
        environment = task.init_environment(environment)
    runtime = FunctionsRuntime(suite.tools)
    found = []
    for call in task.ground_truth(environment):
        result, _ = runtime.run_function(environment, call.function, call.args)
        found.append({"tool": call.function, "arguments": dict(call.args), "injected": CANARY in repr(result)})
    return found


def suite_body(suite: Any) -> dict[str, Any]:
    """Return one suite as JSON."""
    canaries = dict.fromkeys(suite.get_injection_vector_defaults(), CANARY)
    return {
        "tools": {
            tool.name: {
                "server": tool.run.__module__.rpartition(".")[2],
                "schema": tool.parameters.model_json_schema(),
            }
            for tool in suite.tools
        },
        "tasks": {
            name: {"prompt": task.PROMPT, "calls": calls(suite, task, canaries)}
            for name, task in suite.user_tasks.items()
        },
        "injections": {name: calls(suite, task, {}) for name, task in suite.injection_tasks.items()},
    }


if __name__ == "__main__":
    json.dump({name: suite_body(suite) for name, suite in get_suites(VERSION).items()}, sys.stdout, default=str)
