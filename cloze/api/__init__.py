"""What notebooks and scripts call: a model with methods in place of commands, and training on text in memory. No files
needed.

May import: every package but `cli`. To add a method: the work goes into `decoding` or `tasks`, where the command finds
it too; `model.py` only takes and gives strings.
Contract: tests/tasks/test_notebook.py, tests/docs/test_python_page.py (which runs docs/python.md).
"""
