"""Counts of words that occur together, in bounded memory, and the sources of these counts."""
