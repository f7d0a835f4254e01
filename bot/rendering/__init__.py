"""Platform-neutral drawing: views, steps and text turned into values that any platform can draw.

Called by the platforms; knows the domain and the standard library only: no terminal, no Slack, no Discord.
"""
