"""The routes of the HTTP API, one module per subject. Each has `routes(parts)`, which `bot.web.routes` mounts."""
