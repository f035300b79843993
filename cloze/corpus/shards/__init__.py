"""Stores of several shards: their manifest, their rows, building and joining them, and folders at an address."""
