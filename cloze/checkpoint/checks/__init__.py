"""Do the parts of a recipe fit each other? Fields edit by edit, states pass by pass, built on the meta device.

May import the rest of `cloze.checkpoint`. To add a check: `check.py` for what concerns fields, `check_model.py` for states; what
it finds goes into the `Faults` that all of them share.
Its contract is tested in tests/checkpoint and tests/contracts/test_missing_paths.py.
"""
