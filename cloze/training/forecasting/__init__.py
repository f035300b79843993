"""What a run will cost before it starts: timed trials of its first steps, memory, and a forecast.

May import the session and the loop's parts. To add a cost: a field of `Forecast`, which `cloze/runs/planning.py` prints.
Contract: tests/budget/test_forecast.py.
"""
