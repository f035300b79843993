"""FlauBERT ↔ transformers' `Flaubert*`: XLM's layers and names under a type of their own.

Source: FlauBERT (Le et al., 2020), built on facebookresearch/XLM, and transformers' class. Nothing in the weights tells the two
apart: a folder becomes FlauBERT's where a recipe says `architecture: flaubert` of its network, or where it came from one.

Differs: transformers' options of dropping layers (`layerdrop`) and of norms in front of them (`pre_norm`, which fails in
transformers 5.23) are not read.
"""

from __future__ import annotations

from dataclasses import replace

from cloze.interop.architecture import add
from cloze.interop.architectures.xlm import XLM, recipe_of

FLAUBERT = add(replace(
    XLM,
    name="flaubert",
    title="FlauBERT",
    recipe=lambda model: recipe_of(model, "flaubert"),
    legal={**XLM.legal, "pre_norm": (False,), "layerdrop": (0.0, 0)},
    classes=tuple(replace(cls, name=cls.name.replace("XLM", "Flaubert")) for cls in XLM.classes),
    tokenizer_class="PreTrainedTokenizerFast",
))
