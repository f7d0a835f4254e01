"""The routes of the HTTP API, one module a subject. Each has `routes(parts)`, which `bot.web.application` mounts."""
