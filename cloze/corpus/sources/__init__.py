"""Sources: which rows of a store an epoch has, and in which order (plans).

May import stores, tables and readers. To add one: a file here with a class under `@register("source", name)`, whose
`bind` gives a subclass of `BoundSource`, and its import in `cloze/corpus/__init__.py`. Its contract is tested in
tests/corpus/ and tests/contracts.
"""
