"""Commands that people type, written once for all platforms: words in, replies as data out.

A platform parses its own way of typing into an Invocation and draws the Reply; it knows no verb.
"""
