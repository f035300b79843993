"""The recipe language: a file, plain data or a name → a checked `Recipe`, a tree of frozen dataclasses.

May import everything that registers parts; the modules that read recipes import torch only inside functions.
To add a key to the language: `grammar.py` lists it, `read_recipe.py` reads it, `recipe.py` holds it, docs/language.md describes
it. A key of a section that is a dataclass (`Reading`, `TrainingSpec`, `TaskSpec`) is a field of that class.
Its contract is tested in tests/recipe.

From a file to a recipe, in the order of the calls:

    load.py         finds the file, calls the modules below, and applies `--size` and `--set`
    document.py     (in cloze/) YAML → a tree of `Node`s that know their lines
    stages.py       splits a recipe with `stages:` into one tree per stage
    origins.py      fills in networks that come `from:` a checkpoint or an earlier stage
                    changes.py: what their `change:` does to the arguments
    expand.py       writes out short forms and the defaults of parts; paths.py sets values in this form, size.py rescales it
    read_recipe.py  tree → `Recipe` (recipe.py), every value checked; parts become `PartSpec`s
    references.py   checks names that refer to each other

Only `registry` reads the signatures of builders. schema.py expands and checks parts by them, and builders.py calls
the builders and supplies their `Given` arguments. parts.py says which package registers the parts of a kind; faults.py collects
what is wrong.
"""
