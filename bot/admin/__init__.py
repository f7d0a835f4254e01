"""Commands for all platforms: arguments in, replies as data out.

A platform parses its input into an Invocation and renders the Reply. Only this package knows verbs.
"""
