"""Platform-neutral drawing: views, steps and text turned into values that any platform can draw.

Imports only the domain, the standard library and a Markdown parser (`markdown`).
"""
