"""Look-up tables: what belongs to a token, an n-gram or a text, by its number."""
