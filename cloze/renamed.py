"""Arguments of parts that were renamed.

Recipes with an old name are refused: `cloze.assembly.schema` prints the `advice`. Checkpoints with old names still open:
`cloze.interop.read` rewrites the arguments of the network with `translated`, `cloze.interop.heads` those of heads with
`current_head`; `cloze.assembly.earlier` does both for the recipe of a run folder. `RENAMED` holds the new path of each argument,
through parts and sections (`norm.epsilon`), and the YAML to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Now(NamedTuple):
    """The new path of an argument (None if it was removed), and what to write in a recipe."""

    path: str | None
    write: str


_LENGTH = Now("positions.max_length", "positions: {learned: {max_length: …}}")
_EPSILON = Now("norm.epsilon", "norm: {post: {epsilon: …}}")
_STD = Now("initial.std", "initial: {truncated: {std: …}}")
_MAPS = {
    "inner": Now("feed_forward.inner", "feed_forward: {plain: {inner: …}}"),
    "activation": Now("feed_forward.activation", "feed_forward: {plain: {activation: …}}"),
}
_ATTENTION_DROPOUT = {"attention_dropout": Now("dropout.attention", "dropout: {hidden: …, attention: …}")}
_BLOCKS = {
    **_MAPS, **_ATTENTION_DROPOUT,
    "gated": Now("feed_forward", "feed_forward: gated"),
    "biases": Now("attention.biases", "attention: {biases: …} and feed_forward: {plain: {biases: …}}"),
    "norm_epsilon": _EPSILON,
    "normalisation": Now("norm.kind", "norm: {pre: {kind: rms}}"),
    "embedding_norm": Now("norm.embedding", "norm: {post: {embedding: …}}"),
    "final_norm": Now("norm.final", "norm: {pre: {final: …}}"),
    "longest": _LENGTH,
    "deviation": _STD,
}
_EMBEDDING_WIDTH = {"embedding_width": Now("embedding.width", "embedding: {table: {width: …}}")}
_CHARACTERS = {"characters": Now("embedding", "embedding: {char_cnn: …}")}
_INIT_STD = {"deviation": Now("init_std", "init_std: …")}
_MAX_LENGTH = {"longest": Now("max_length", "max_length: …")}
_MEMORY = {"reuse": Now("memory.reuse", "memory: {size: …, reuse: …}")}
_RELATIVE = {
    "clamp": Now("positions.clamp", "positions: {relative: {clamp: …}}"),
    "untie": Now("positions.untie", "positions: {relative: {untie: …}}"),
}


def _recurrent_dropout(name: str) -> Now:
    return Now(f"dropout.{name}", f"dropout: {{{name}: …}}")


#: The old arguments by network.
RENAMED: Mapping[str, Mapping[str, Now]] = {
    "transformer": {
        **_BLOCKS, **_EMBEDDING_WIDTH, **_CHARACTERS,
        "norm_biases": Now("norm.kind", "norm: {pre: {kind: layer_without_biases}}"),
        "first_norm": Now("norm.first", "norm: {pre: {first: …}}"),
        "projection": Now("embedding.project", "embedding: {table: {project: true}}, where the widths are equal"),
        "rotary_base": Now("positions.base", "positions: {rotary: {base: …}}"),
        "rotary_local_base": Now("positions.local_base", "positions: {rotary: {local_base: …}}"),
        "relative_limit": Now("positions.limit", "positions: {functional: {limit: …}}"),
        "attention_band": Now("attention.band.width", "attention: {band: {width: …}}"),
        "dense_every": Now("attention.band.dense_every", "attention: {band: {width: …, dense_every: …}}"),
        "repeat": Now("share.weights", "share: {weights: all}"),
        "groups": Now("share.groups", "share: {weights: all, groups: …}"),
        "position_deviation": Now("initial.positions", "initial: {normal: {positions: …}}"),
        "residual_scaling": Now("initial.residual", "initial: {normal: {residual: scaled}}"),
        "silence_padding": Now(None, "nothing: no real token reads the states of padding"),
        "inputs": Now("embedding.inputs", "embedding: {table: {inputs: …}}"),
    },
    "encoder_decoder": {
        **_BLOCKS,
        "buckets": Now("positions.buckets", "positions: {buckets: {buckets: …}}"),
        "farthest": Now("positions.farthest", "positions: {buckets: {farthest: …}}"),
        "share_positions": Now(None, "nothing: each stack has positions of its own"),
        "scale_scores": Now("attention.scaled", "attention: {scaled: …}"),
        "inner_dropout": Now("dropout.inner", "dropout: {hidden: …, inner: …}"),
        "dropout_mask": Now("dropout.mask", "dropout: {hidden: …, mask: row}"),
        "inputs": Now("embedding.inputs", "embedding: {inputs: …}"),
        "scale_embeddings": Now("embedding.scaled", "embedding: {scaled: …}"),
    },
    "transformer_xl": {
        **_MAPS, **_ATTENTION_DROPOUT, **_RELATIVE, **_MEMORY, **_INIT_STD,
        "embedding_width": Now("embedding.width", "embedding: {width: …}"),
        "cutoffs": Now("embedding.cutoffs", "embedding: {cutoffs: …}"),
        "divide": Now("embedding.divide", "embedding: {cutoffs: …, divide: …}"),
        "same_length": Now("memory.same_length", "memory: {size: …, same_length: …}"),
    },
    "two_stream": {**_MAPS, **_ATTENTION_DROPOUT, **_RELATIVE, **_MEMORY, **_INIT_STD},
    "lstm": {
        **_CHARACTERS,
        **{f"{name}_dropout": _recurrent_dropout(name) for name in ("word", "input", "weight", "hidden")},
        **{name: _recurrent_dropout(name) for name in ("locked", "locked_between")},
    },
    "bilstm": _CHARACTERS,
    "window": _INIT_STD,
    "pair_attention": _INIT_STD,
    "zen": {**_MAPS, **_ATTENTION_DROPOUT, **_MAX_LENGTH, "deviation": _STD},
}


_MIXED = {
    name: Now(f"mixed.{name}", f"mixed: {{{name}: …}}")
    for name in ("layers", "use", "combine", "mix", "embedding_width", "penalty", "norm")
}
_MIXING = {name: now for name, now in _MIXED.items() if name != "layers"}
_TRANSFORM = {
    name: Now(f"transform.{name}", f"transform: {{gelu: {{{name}: …}}}}") for name in ("norm_epsilon", "biases")
}

#: The old arguments by objective.
OBJECTIVES: Mapping[str, Mapping[str, Now]] = {
    "token_prediction": {
        "deviation": Now("init_std", "init_std: …"),
        "sampled": Now("sampled_prediction.samples", "sampled_prediction: {samples: …}"),
        "most": Now("sampled_prediction.frequent", "sampled_prediction: {frequent: …}"),
    },
    "span_boundary": _MAX_LENGTH,
    **dict.fromkeys(("classify", "regress", "several", "choose", "soft_classification", "span_extraction"), _TRANSFORM),
    "sequence_labelling": {**_MIXED, **_TRANSFORM},
    "mixed_classification": _MIXED,
    "layer_classification": _MIXING,
    "layer_labelling": _MIXING,
}

_PUT_BACK = Now(None, "nothing: sentences that a random second segment displaces always begin the next passage")

#: The old arguments by kind and part. Checkpoints store those of networks and objectives.
PARTS: Mapping[str, Mapping[str, Mapping[str, Now]]] = {
    "network": RENAMED,
    "objective": OBJECTIVES,
    "edit": {
        "answer": _MAX_LENGTH, "close": _MAX_LENGTH,
        "mask": {"one_in": Now(None, "rate: 0.1667 and rounding: down for one token in 6")},
        "pair": {"planned": _PUT_BACK},
    },
    "source": {"sentences": _MAX_LENGTH, "passages": {"put_back": _PUT_BACK}},
}


def advice(kind: str, part: str, key: str) -> str | None:
    """A sentence on what to write instead of an old argument; None if the part never had an argument of this name.

    >>> advice("network", "transformer", "norm_epsilon")
    'It has a new name: write norm: {post: {epsilon: …}}.'
    """
    now = PARTS.get(kind, {}).get(part, {}).get(key)
    if now is None:
        return None
    return f"It has a new name: write {now.write}." if now.path else f"It is gone: write {now.write}."


def current_head(part: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The objective and the arguments of a head, translated from the names of earlier versions."""
    if part == "span_boundary":
        return part, {"max_length" if name == "longest" else name: value for name, value in arguments.items()}
    if part != "token_prediction":
        return part, _grouped(dict(arguments), OBJECTIVES.get(part, {}))
    new = {"init_std" if name == "deviation" else name: value for name, value in arguments.items()}
    samples, frequent = new.pop("sampled", None), new.pop("most", None)
    if samples is None and frequent is None:
        return part, new
    kept = {"transform", "norm_epsilon", "tie", "bias", "set"}
    shared = {name: value for name, value in new.items() if name in kept}
    return "sampled_prediction", {**shared, "samples": samples, "frequent": frequent}


def _grouped(old: dict[str, Any], names: Mapping[str, Now]) -> dict[str, Any]:
    """The arguments of a head in which the old `names` are grouped in `transform` and in `mixed`; without layers nothing was
    mixed, and without a transform there was no norm."""
    own = {name: old.pop(name) for name in names if name in old}
    if isinstance(kind := old.get("transform"), str) and own.keys() & _TRANSFORM.keys():
        old["transform"] = {kind: {name: own[name] for name in _TRANSFORM if name in own}}
    if own.get("layers") or names is _MIXING and own:
        old["mixed"] = {name: own[name] for name in _MIXED if name in own}
    return old


def is_old(part: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a checkpoint's network use names of an earlier version."""
    return any(key in arguments for key in RENAMED.get(part, {}))


def translated(part: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a checkpoint's network, translated if they use names of an earlier version.

    A checkpoint holds every argument, so those without parts are translated as a whole.
    """
    return _TRANSLATIONS[part](dict(arguments)) if is_old(part, arguments) else dict(arguments)


def _feed_forward(old: dict[str, Any]) -> dict[str, Any]:
    kind = "gated" if old.pop("gated", False) else "plain"
    own = {name: old.pop(name) for name in ("inner", "activation") if name in old}
    return {kind: own | ({"biases": old["biases"]} if "biases" in old else {})}


def _norm(old: dict[str, Any]) -> dict[str, Any]:
    place = old.pop("norm", None) or "post"
    kind = old.pop("normalisation", "layer")
    kind = "layer_without_biases" if old.pop("norm_biases", True) is False and kind == "layer" else kind
    names = {"norm_epsilon": "epsilon", "embedding_norm": "embedding", "final_norm": "final", "first_norm": "first"}
    own = {new: old.pop(name) for name, new in names.items() if name in old}
    if place == "post":
        own.pop("first", None)
    return {place: {"kind": kind, **{name: value for name, value in own.items() if value is not None}}}


def _initial(old: dict[str, Any], usual: str) -> dict[str, Any]:
    kind, std, positions = old.pop("initial", usual), old.pop("deviation", 0.02), old.pop("position_deviation", None)
    residual = {True: "scaled", "by_depth": "scaled_by_depth"}.get(old.pop("residual_scaling", False), "as_drawn")
    drawn = {"std": std, "positions": positions, "residual": residual}
    return {kind: {} if kind in ("uniform", "t5") else drawn}


def _positions(old: dict[str, Any]) -> dict[str, Any]:
    kind, length = old.pop("positions", "learned"), old.pop("longest", None) or 512
    own = {
        "rotary": {"base": "rotary_base", "local_base": "rotary_local_base"}, "functional": {"limit": "relative_limit"},
        "buckets": {"buckets": "buckets", "farthest": "farthest"},
    }
    names = own.pop(kind, {})
    for name in ("rotary_base", "rotary_local_base", "relative_limit", "buckets", "farthest"):
        value = old.pop(name, None)
        names = {new: value if given == name else given for new, given in names.items()}
    kept = {name: value for name, value in names.items() if value is not None}
    return {kind: kept if kind in ("buckets", "none") else {**kept, "max_length": length}}


def _dropout(old: dict[str, Any]) -> dict[str, Any]:
    return {"hidden": old.pop("dropout", 0.1), "attention": old.pop("attention_dropout", None)}


def _transformer(old: dict[str, Any]) -> dict[str, Any]:
    inputs = old.pop("inputs", None)
    made = old if "feed_forward" in old else _with_parts(old)
    if not inputs:
        return made
    embedding = made.get("embedding") or {"table": {}}
    if "table" not in embedding:
        raise ValueError("inputs are given, and a network that reads words by their characters no longer has further tables")
    return {**made, "embedding": {"table": {**embedding["table"], "inputs": inputs}}}


def _with_parts(old: dict[str, Any]) -> dict[str, Any]:
    characters, width, project = old.pop("characters", None), old.pop("embedding_width", None), old.pop("projection", None)
    band, every = old.pop("attention_band", None), old.pop("dense_every", None)
    weights, groups = old.pop("repeat", "none"), old.pop("groups", 1)
    old.pop("silence_padding", None)
    new = {
        "feed_forward": _feed_forward(old), "norm": _norm(old), "positions": _positions(old), "dropout": _dropout(old),
        "initial": _initial(old, "truncated"),
        "embedding": characters or {"table": {"width": width, "project": bool(project) and width in (None, old["width"])}},
        "attention": {
            "biases": old.pop("biases", True), "band": None if band is None else {"width": band, "dense_every": every},
        },
        "share": None if weights == "none" else {"weights": weights.replace("ffn", "feed_forward"), "groups": groups},
    }
    return {**old, **new}


def _zen(old: dict[str, Any]) -> dict[str, Any]:
    length = old.pop("longest", 512)
    new = {"feed_forward": _feed_forward(old), "dropout": _dropout(old), "initial": _initial(old, "normal")}
    return {**old, **new, "max_length": length}


def _encoder_decoder(old: dict[str, Any]) -> dict[str, Any]:
    embedding = {"scaled": old.pop("scale_embeddings", False), "inputs": old.pop("inputs", None)}
    if "feed_forward" in old:
        return {**old, "embedding": embedding}
    if old.pop("share_positions", False):
        raise ValueError("share_positions is true, and stacks no longer share a table of positions")
    more = {"inner": old.pop("inner_dropout", 0.0), "mask": old.pop("dropout_mask", "position")}
    biases = old.get("biases", True)
    new = {
        "feed_forward": _feed_forward(old), "norm": _norm(old), "positions": _positions(old), "dropout": _dropout(old) | more,
        "initial": _initial(old, "truncated"), "attention": {"biases": biases, "scaled": old.pop("scale_scores", True)},
    }
    old.pop("biases", None)
    return {**old, **new, "embedding": embedding}


def _relative(old: dict[str, Any]) -> dict[str, Any]:
    size = old.pop("memory", 0)
    memory = {"size": size} | {name: old.pop(name) for name in ("reuse", "same_length") if name in old}
    new = {
        "feed_forward": _feed_forward(old), "dropout": _dropout(old), "memory": memory if size else None,
        "positions": {"relative": {name: old.pop(name) for name in ("clamp", "untie") if name in old}},
    }
    adaptive = {"width": "embedding_width", "cutoffs": "cutoffs", "divide": "divide"}
    embedding = {name: old.pop(given) for name, given in adaptive.items() if given in old}
    return {**_with_std(old), **new, **({"embedding": embedding} if embedding else {})}


def _with_std(old: dict[str, Any]) -> dict[str, Any]:
    return {"init_std" if name == "deviation" else name: value for name, value in old.items()}


def _lstm(old: dict[str, Any]) -> dict[str, Any]:
    rates = {"output": old.pop("dropout", 0.0)}
    rates |= {name: old.pop(f"{name}_dropout") for name in ("hidden", "weight", "input", "word") if f"{name}_dropout" in old}
    rates |= {name: old.pop(name) for name in ("locked", "locked_between") if name in old}
    characters = old.pop("characters", None)
    return {**old, "dropout": rates, "embedding": characters}


def _bilstm(old: dict[str, Any]) -> dict[str, Any]:
    return {"embedding": old.pop("characters", None), **old}


_TRANSLATIONS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "transformer": _transformer, "zen": _zen, "encoder_decoder": _encoder_decoder, "transformer_xl": _relative,
    "two_stream": _relative, "lstm": _lstm, "bilstm": _bilstm, "window": _with_std, "pair_attention": _with_std,
}
