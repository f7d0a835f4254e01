"""Servers of the kinds that people connect: real ones, by the MCP library, each with a record of what it did."""
