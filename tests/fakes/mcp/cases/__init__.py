"""Servers of typical kinds: real ones, by the MCP library, each with a record of its effects."""
