"""Look-up tables: what belongs to a token, an n-gram or a text, by its number.

May import stores. To add one: a subclass of `LookUp` under `@register("table", name)`, and its import in
`cloze/corpus/__init__.py`.
Its contract is tested in tests/corpus/.
"""
