"""Recipe file → checked plan → run: the recipe language, the check of fields and states, building, running.

May import every package except notebook, reports and cli. The modules that read recipes import torch only inside functions.
To add a key to the language: `grammar.py` reads it, `recipe.py` holds it, docs/language.md describes it.
Its contract is tested in tests/assembly.

From a file to a checked recipe, in the order of the calls:

    load.py       finds the file, calls the modules below, and applies `--size` and `--set`
    document.py   YAML → a tree of `Node`s that know their lines
    stages.py     splits a recipe with `stages:` into one tree per stage
    origins.py    fills in networks that come `from:` a checkpoint or an earlier stage
    expand.py     writes out short forms and defaults of parts; schema.py derives the legal keys from signatures
    grammar.py    tree → `Recipe` (recipe.py), every value checked; parts become `PartSpec`s
    structure.py  checks names that refer to each other
    check.py      checks fields and states by building everything on the meta device (`cloze check`, and before a run)

From the recipe to objects: build.py builds networks, heads and feeds; given.py calls the builders and supplies their `Given`
arguments. build.py also opens checkpoints (`load_checkpoint`). run.py, preparing.py and finetune.py train; publish.py writes the
folder of a run. docs/architecture.md follows a recipe key and a prediction through all packages.
"""
