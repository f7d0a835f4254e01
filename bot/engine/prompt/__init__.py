"""Model requests: the messages, history, files and tools, within the model's context window.

builder  requests of one turn, with retries     context         the messages of a request
history  earlier turns and their summary        attachments     files as parts of a message
tool_selection  the tools of a request          token_estimates size of messages and tools
text_format     author labels, tool results
"""
