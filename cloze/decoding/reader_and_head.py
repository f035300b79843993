"""What a checkpoint is used with: the reader and the head for filling, writing, scoring and vectors, or what it can instead."""

from __future__ import annotations

from typing import Any, NamedTuple

from cloze.decoding.generating.sequence import answers, has_decoder
from cloze.decoding.generating.writing import asks
from cloze.decoding.reader import Checkpoint, Reader, head_of_kind, prediction_head, require_order
from cloze.decoding.scores.scoring import Method, check_order, method_of
from cloze.decoding.vectors.embedding import sentence_head
from cloze.errors import CheckpointError, UserError

_MASKED = "Give --with a masked language model, such as a BERT."


class Ready(NamedTuple):
    """A reader in the order that is needed, and the head; `method`: of scoring, None for one that scores answers to texts."""

    reader: Reader
    head: Any
    method: Method | None = None


def to_fill(loaded: Checkpoint, *, language: str | None = None) -> Ready:
    """What fills masks; a `ClozeError` for a network that does not."""
    order = require_order(loaded, "open", verb="fill", instead=f"To continue a text: cloze generate {loaded.folder} TEXT")
    return Ready(Reader.of(loaded, order=order, language=language), prediction_head(loaded, verb="fill"))


def to_embed(loaded: Checkpoint, *, language: str | None = None) -> Ready:
    """What makes vectors of texts, with the head that was trained for it, None if there is none; a `ClozeError` for a network
    that reads no texts, or gives no states of tokens."""
    network = loaded.network
    if network.of_triples:
        raise CheckpointError(
            f"{loaded.folder}: reads the triples of a graph, so it gives no vectors of texts.\n"
            f"  To see those of its entities: cloze neighbours {loaded.folder} ENTITY\n"
            f"  To write them to a file: cloze export {loaded.folder} vectors.txt"
        )
    if "hidden" not in network.gives:
        raise CheckpointError(f"{loaded.folder}: this network gives no states of tokens, of which a vector could be made.")
    return Ready(Reader.of(loaded, language=language), sentence_head(loaded))


def to_augment(loaded: Checkpoint) -> Ready:
    """What fills masks for `cloze augment`; a `ClozeError` for a network that does not."""
    order = require_order(loaded, "open", verb="augment", instead=_MASKED)
    ready = Ready(Reader.of(loaded, order=order), prediction_head(loaded, verb="augment"))
    if "[MASK]" not in ready.reader.tokenizer.roles:
        raise UserError(f"{loaded.folder}: its vocabulary has no [MASK], in whose place words are predicted.\n  {_MASKED}")
    return ready


def to_generate(loaded: Checkpoint, *, language: str | None = None, to: str | None = None) -> Ready:
    """What continues texts or answers them; a `ClozeError` for a network that does neither."""
    reader, head = Reader.of(loaded, language=language, to=to), head_of_kind(loaded, "token_prediction")
    if head is not None and asks(reader, head):
        return Ready(reader, head)
    if not has_decoder(reader):
        order = require_order(loaded, "source_to_target", "left_to_right", verb="generate", instead=_instead(loaded))
        reader = Reader.of(loaded, order=order, language=language)
    return Ready(reader, prediction_head(loaded, verb="generate"))


def to_score(
    loaded: Checkpoint, *, order: str | None = None, language: str | None = None, to: str | None = None
) -> Ready:
    """What scores texts, or answers to texts; a `ClozeError` for a network that does neither."""
    check_order(loaded, order)
    reader = Reader.of(loaded, order=order, language=language, to=to)
    if answers(reader):
        return Ready(reader, prediction_head(loaded, verb="score"))
    method, head = method_of(loaded, order)
    return Ready(reader, head, method)


def check_scored(method: Method | None, *, answers: bool, stride: int | None, truncate: bool) -> None:
    """A `UserError` for what `Model.score` is given and this method would ignore, and for answers that it lacks."""
    if method is None and not answers:
        raise UserError("score: this network scores answers to texts. Call model.score(texts, answers).")
    if method is None and stride is not None:
        raise UserError("stride divides a long text; this network scores answers to texts, which truncate cuts. Leave it out.")
    if method is not None and answers:
        raise UserError("score: this network scores texts alone. Leave the answers out.")
    if method is not None and truncate:
        raise UserError("truncate cuts answers and what they answer; this network scores texts alone, whole. Leave it out.")


def predicting_heads(loaded: Checkpoint) -> list[str]:
    """The names of the heads that predict tokens, first those of what the network writes, if it does."""
    names = [name for name, head in loaded.heads.items() if head.over_vocabulary]
    return sorted(names, key=lambda name: loaded.network.writes not in (loaded.reads.get(name) or {}).values())


def _instead(loaded: Checkpoint) -> str:
    """What to do with a network that does not write."""
    if head_of_kind(loaded, "token_prediction") is not None:
        return f'To fill a gap: cloze fill {loaded.folder} "… [MASK] …"'
    if head_of_kind(loaded, "token_labelling") is not None:
        return f"It predicts no words. To judge the tokens of a text: cloze score {loaded.folder} TEXT"
    if not loaded.network_arguments.get("words", True):  # vectors of paragraphs alone
        return f"It predicts no words. To make vectors of texts: cloze embed {loaded.folder} TEXT"
    return f"It predicts no words. To see what it learned of one: cloze neighbours {loaded.folder} WORD"
