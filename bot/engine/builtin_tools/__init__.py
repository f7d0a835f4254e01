"""Tools of the bot itself: searching for tools, reading the rest of a result."""
