"""Incoming actions and messages, handled alike on every platform.

Imports the interfaces of the engine and the commands, and the rendering; no platform and no library.
"""
