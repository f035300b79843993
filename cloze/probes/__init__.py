"""What is inside a network: what it computes for one text (`cloze look`), and what its layers and heads hold (`cloze
probe`).

May import: tasks, decoding, interop and everything below; not recipes or reports. `look.py` collects attention,
predictions (`lens`) and neighbours by layer, `attribution.py` integrated gradients. Probes of layers read the vectors
of words (`words.py`): `geometry.py`, `layers.py` with `linear.py`, `distance.py`, `static.py`. `heads.py` closes
heads by their gates (`gates.py`) and needs a loss for every example (`losses.py`). To add a probe: a file with a
function from a checkpoint and texts to its figures, and one from those to a `Finding` (`finding.py`), which the
terminal, the page and the JSON file show; then an entry in `KINDS` of `cloze/cli/look/probe.py`, a line
in the help of that command, a section of docs/inside.md and a word in docs/commands.md.
Contract: tests/probes, and tests/contracts/test_look.py and test_probes.py on every kind of network.
"""

from cloze.probes.look import Seen, look

__all__ = ["Seen", "look"]
