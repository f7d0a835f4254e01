"""Transports of MCP: child processes, streamable HTTP and server-sent events."""
