"""The bot's HTTP server: API, health, metrics, pages for links, and hooks of platforms."""
