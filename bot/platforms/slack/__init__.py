"""Slack: everything between its HTTP and websocket interfaces and the engine's ports.

`listener.py` receives, `surface.py` draws, and neither needs the other: a process that only works draws with the bot's
token alone. No type and no error of Slack's libraries leaves this folder. It knows no settings, no language model, no
MCP and no database.
"""
