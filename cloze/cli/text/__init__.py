"""The commands of the section Text: corpus, vocab, link, features, peek; and the options of `corpus`.

May import what `cloze.cli` may. To add a command: a module here with `command(...)`, and one line in `COMMANDS` (commands.py).
Contract: tests/cli/test_frame.py and tests/docs/test_contracts.py.
"""
