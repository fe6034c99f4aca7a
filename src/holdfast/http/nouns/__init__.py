"""The nouns of the API, one module each: its views, and the table of its routes."""
