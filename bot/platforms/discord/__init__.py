"""Discord platform: messages, interactions and commands arrive over the gateway; turns are delivered over REST.

Any process with the bot's token can deliver. One process at a time holds the gateway.
"""
