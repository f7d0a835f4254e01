"""Model requests: the messages, history, files and tools, within the model's context window.

builder      requests of one turn, their tools, retries    messages     the messages of a request
history      earlier turns and their summary               attachments  files as parts of a message
"""
