"""Recipe file → checked plan → run: the recipe language, the check of fields and states, building, running.

May import everything below it (§1.3 of the design), torch only inside functions of `check` and in `build` and `run`.
To add a key to the language: `grammar.py` reads it, `recipe.py` holds it, docs/language.md says what it means.
Its contract is tested in tests/assembly.
"""
