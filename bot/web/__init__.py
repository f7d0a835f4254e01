"""The bot's own HTTP: health, and what platforms that call us hand in. Knows no platform, no model and no database."""
