"""Engine: receives messages, runs their turns, asks for approvals, delivers views.

    engine         operations for platforms, loops     worker          claiming and stopping turns
    turn_runner    one turn, step by step              tool_execution  sending a call
    view_delivery  posting views, with retries         scheduler       periodic jobs
    approvals      decisions, grants, edits            elicitation     questions of servers
    usage          metering and limits                 config_files    the operator's TOML files
    policy/        which calls may run                 prompt/         model requests
    builtin_tools/ the bot's own tools

Depends on ports and values only: no platform, no provider, no MCP, no SQL.
"""
