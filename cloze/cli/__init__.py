"""One verb per file: reads the command line, calls the library, prints.

May import: everything below (see pyproject.toml); nothing imports it. A verb's module is loaded only when it is used.
To add a verb: a module with `command(...)` annotated for typer, and one line in `VERBS` (verbs.py).
Contract: tests/cli/test_frame.py and tests/docs/test_contracts.py (help, mention in the documents, exit codes, speed).
"""
