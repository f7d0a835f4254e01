"""Model requests: the messages, history, files and tools, within the model's context window.

builder         requests of one turn, with retries    messages     the messages of a request
tool_selection  the tools of a request                history      earlier turns and their summary
attachments     files as parts of a message
"""
