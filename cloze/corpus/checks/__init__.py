"""Checks of text and of parallel text before anything is built from it."""
