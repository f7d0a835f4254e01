"""Discord: what people say, press and type comes in through the gateway; turns are drawn over REST.

Receiving and drawing are apart: any process with the bot's token can draw, one at a time holds the gateway.
"""
