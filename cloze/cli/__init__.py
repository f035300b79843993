"""One command per file: reads the command line, calls the library, prints.

May import: everything below (see pyproject.toml); nothing imports it. A command's module is loaded only when it is used.
To add a command: a module with `command(...)` annotated for typer, and one line in `COMMANDS` (commands.py).
Contract: tests/cli/test_frame.py and tests/docs/test_contracts.py (help, mention in the documents, exit codes, speed).
"""
