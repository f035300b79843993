"""Sources: which rows of a store an epoch has, and in which order (plans)."""
