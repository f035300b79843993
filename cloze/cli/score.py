"""`cloze score`: how probable sentences are; accuracy on minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cloze.decoding.minimal_pairs import Preference


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; none: --file, --pairs or standard input.")] = None,
    file: Annotated[str | None, typer.Option(help="A file with a text per line, or JSON lines; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The field of a JSON line that holds the text.")] = "text",
    pairs: Annotated[
        Path | None, typer.Option(help="Minimal pairs: a JSON-lines file, a folder of them, or a .tar.xz (BLiMP).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pairs of every file.")] = None,
    language: Annotated[str | None, typer.Option(help="Of a network that knows several: the text's, else the first.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    order: Annotated[
        str | None, typer.Option(help="Of a network that reads in several: open or left_to_right; else its usual one.")
    ] = None,
    pointer: Annotated[
        int | None, typer.Option(min=1, help="Left to right: remember so many tokens of the texts before, as one stream.")
    ] = None,
    pointer_scale: Annotated[float, typer.Option(help="Of --pointer: how sharply states are compared.")] = 1.0,
    pointer_share: Annotated[float, typer.Option(min=0, help="Of --pointer: its share of each probability.")] = 0.1,
    precision: Annotated[str, typer.Option(help="fp32, bf16 (faster, three digits) or auto.")] = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score sentences, or count how often the acceptable sentence of a pair scores higher (a tie counts as a failure).

    The score is the log-probability for a left-to-right network, the pseudo-log-likelihood (each token masked alone) for
    a masked one, and the summed log-probability that each token is original for a discriminator.
    """
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    if pairs is not None and (texts or file):
        raise UserError("give --pairs or texts, not both.")
    if pairs is not None and pointer is not None:
        raise UserError("the sentences of --pairs are scored alone; --pointer remembers the texts before. Give one of them.")
    given = [] if pairs is not None else gather(texts or [], file, field=field)

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.pointer_cache import Pointer
    from cloze.decoding.progress import Progress
    from cloze.decoding.reader import Reader
    from cloze.decoding.scoring import method_of, score
    from cloze.tasks.finetune import as_dtype

    chosen = _pairs(pairs, limit) if pairs is not None else []
    loaded = load_checkpoint(checkpoint, device)
    method, head = method_of(loaded, order)
    reader = Reader.of(loaded, order=order, language=language, precision=as_dtype(precision, loaded.clock.seed.device))
    if pairs is not None:
        from cloze.decoding.minimal_pairs import prefer

        with Progress(2 * len(chosen), "sentences") as progress:
            found = prefer(reader, head, chosen, method=method, report=progress)
        _print_preferences(found, method, as_json)
        return
    with Progress(len(given), "texts") as progress:
        cache = None if pointer is None else Pointer(pointer, pointer_scale, pointer_share)
        scores = score(reader, head, given, method=method, pointer=cache, report=progress)
    for text, one in zip(given, scores, strict=True):
        if as_json:
            import json

            record = {"text": text, "score": one.score, "tokens": one.tokens, "cut": one.cut, "method": method}
            print(json.dumps(record, ensure_ascii=False))
        else:
            print(f"{one.score:.4f}\t{one.tokens}\t{text}")


def _pairs(path: Path, limit: int | None) -> list[Any]:
    from cloze.decoding.minimal_pairs import read_pairs

    return read_pairs(path, limit=limit)


def _print_preferences(found: Sequence[Preference], method: str, as_json: bool) -> None:
    from cloze.decoding.minimal_pairs import overall

    whole = overall(found)
    if as_json:
        import json

        def record(one: Preference) -> dict[str, Any]:
            return {"file": one.file, "pairs": one.pairs, "right": one.right, "ties": one.ties, "accuracy": one.accuracy}

        print(json.dumps({"method": method, "overall": record(whole), "files": [record(one) for one in found]}, indent=2))
        return
    width = max(len(one.file) for one in [*found, whole])
    print(f"{'file':<{width}}  {'pairs':>6}  {'ties':>5}  accuracy")
    for one in [*found, whole]:
        print(f"{one.file:<{width}}  {one.pairs:>6}  {one.ties:>5}  {one.accuracy:8.2%}")
