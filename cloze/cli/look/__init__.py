"""The commands of the section Look: look, probe, report, demo.

May import what `cloze.cli` may. To add a command: a module here with `command(...)`, and one line in `COMMANDS` (commands.py).
Contract: tests/cli/test_frame.py and tests/docs/test_contracts.py.
"""
