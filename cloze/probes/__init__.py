"""What is inside a network: what it computes for one text (`cloze look`), and what its layers and heads hold (`cloze
probe`).

May import: tasks, decoding, interop and everything below; not recipes or reports. `look.py` collects attention,
predictions (`lens`) and neighbours by layer, `attribution.py` integrated gradients. `kinds` has the probes, which extend
`Probe` (`probe.py`) and whose findings (`finding.py`) the terminal, the page and the JSON file show; the modules here have
what they compute. Probes of layers read the vectors of words (`words.py`): `geometry.py`, `layers.py` with `linear.py`,
`description.py`, `distance.py`, `attachments.py`, `static.py`; `edges.py` reads spans of tokens. `training.py` trains probes
until a development set says stop. `attention.py` measures what heads attend to, `relations.py` which find heads of words.
`heads.py` closes heads by their gates (`gates.py`); like `curvature.py` and `surface.py`, it needs a loss for every example
(`losses.py`). To add a probe: a file in `kinds` with a dataclass that extends `Probe`, decorated `@register("probe", name)`, its
import below, a test, a section of docs/inside.md and its name in the table there. The command and its help follow from it.
Contract: tests/probes, and tests/contracts/test_look.py and test_probes.py on every kind of network.
"""

from cloze.probes.kinds import (  # noqa: F401  the imports register the probes
    attention_heads,
    contextuality,
    description_length,
    edge_probing,
    head_importance,
    layer_similarity,
    loss_curvature,
    loss_surface,
    static_vectors,
    tree_distance,
    word_heads,
    word_labels,
)
from cloze.probes.probe import Probe

__all__ = ["Probe"]
