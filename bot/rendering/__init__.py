"""Platform-neutral drawing: views, steps and text turned into values that any platform can draw.

Called by the platforms; knows the domain, the standard library and a Markdown parser (`markdown_tree`) only: no
terminal, no Slack, no Discord.
"""
