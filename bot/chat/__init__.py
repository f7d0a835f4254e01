"""Incoming actions and messages, handled alike on every platform.

Knows the engine's and the commands' front doors and what is drawn, no platform and no library.
"""
