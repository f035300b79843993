"""`python -m cloze` is the `cloze` executable."""

from __future__ import annotations

import sys

from cloze.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
