"""What happens: a message comes in, a turn is driven, an approval is decided, a turn is stopped.

    engine    what platforms may ask          worker    which turns this process drives
    turn      one turn, told in order         drawing   getting views out, and out again after a failure
    asking    one reply of the model          context   what the model reads
    calling   one call of a tool              policy    which calls ask first; who may sign

Knows ports and values only: no platform, no provider, no MCP, no SQL.
"""
