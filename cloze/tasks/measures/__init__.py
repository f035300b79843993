"""What predictions are measured by: functions of right and predicted answers.

May import the foundation and each other. To add one: a file here with functions of arrays or strings.
Contract: tests/tasks/test_metrics.py and its neighbours.
"""
