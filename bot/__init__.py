"""Countersign: an assistant that works through MCP servers and acts only on the right person's signature."""

__version__ = "0.1.0"
