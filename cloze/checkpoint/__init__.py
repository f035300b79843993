"""Recipes and checkpoints → objects: networks, heads and feeds, opened, warm-started, changed, checked, and published.

May import the recipe language and what it imports. `build.py` builds the modules that a recipe describes and opens
checkpoints (`load_checkpoint`); `feeds.py` builds the data of a recipe; `warm_start.py` starts the networks of a run from
checkpoints; `publish.py` writes the folder of a run.
To add something that a checkpoint holds: `publish.py` writes it and `build.py` opens it.
Its contract is tested in tests/checkpoint.
"""
