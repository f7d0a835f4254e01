"""The bundled files: the agency's table of areas (facts), and an invented forecast for a few of them."""
