"""Engine: receives messages, runs their turns, asks for approvals, delivers views.

    engine                operations for platforms      worker         claiming and stopping turns
    turn_runner           one turn, step by step        view_delivery  posting views, with retries
    prompt_builder        model requests                prompt_context the messages of a request
    call_authorization    policies and approvals        tool_execution sending a call

Depends on ports and values only: no platform, no provider, no MCP, no SQL.
"""
