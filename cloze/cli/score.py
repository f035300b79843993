"""`cloze score`: how probable sentences are; accuracy on minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cloze.decoding.minimal_pairs import Preference
    from cloze.decoding.scoring import Score


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; none: --file, --pairs or standard input.")] = None,
    file: Annotated[str | None, typer.Option(help="A text per line, or JSON lines; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The field or column with the text.")] = "text",
    target: Annotated[str, typer.Option(help="The one with the answer, if it answers texts.")] = "target",
    columns: Annotated[str | None, typer.Option(help="Columns of a file without a header: a,b,c.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Minimal pairs: JSON lines, a folder, a .tar.xz.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pairs of every file.")] = None,
    language: Annotated[str | None, typer.Option(help="Of a network with several; default: the first.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    order: Annotated[str | None, typer.Option(help="open, left_to_right or source_to_target.")] = None,
    pointer: Annotated[int | None, typer.Option(min=1, help="Remember so many tokens of the texts before.")] = None,
    pointer_scale: Annotated[float | None, typer.Option(help="Of --pointer: how sharply it compares, usually 1.")] = None,
    pointer_share: Annotated[float | None, typer.Option(min=0, help="Of --pointer: its share, usually 0.1.")] = None,
    memory: Annotated[int | None, typer.Option(min=0, help="Texts are one stream: remember so many tokens.")] = None,
    clamp: Annotated[int | None, typer.Option(min=1, help="Of --memory: greatest distance told apart.")] = None,
    same_length: Annotated[bool, typer.Option("--same-length", help="Of --memory: every token sees as many.")] = False,
    segment: Annotated[int | None, typer.Option(min=1, help="Of --memory: tokens read at once, usually 128.")] = None,
    perplexity: Annotated[bool, typer.Option("--perplexity", help="One figure for all texts.")] = False,
    precision: Annotated[str, typer.Option(help="fp32, bf16 (faster, three digits) or auto.")] = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score sentences, or count how often the acceptable sentence of a pair scores higher (a tie counts as a failure).

    The score is the log-probability for a left-to-right network, the pseudo-log-likelihood (each token masked alone) for
    a masked one, and the summed log-probability that each token is original for a discriminator. A network that answers
    (t5, bart, mass; unilm with --order source_to_target) gives the log-probability of an answer, its end included: lines
    are TEXT<tab>ANSWER, files .tsv, .csv and .jsonl have columns text and target.
    """
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    _check(pairs, bool(texts or file), pointer, memory, perplexity=perplexity)
    _check_beside(pointer, (pointer_scale, pointer_share), memory, (clamp, segment, same_length or None))

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.pointer_cache import Pointer
    from cloze.decoding.progress import Progress
    from cloze.decoding.reader import Reader, prediction_head
    from cloze.decoding.scoring import check_order, method_of, score
    from cloze.decoding.sequence import answers
    from cloze.decoding.stream_scoring import Recall, score_stream
    from cloze.tasks.finetune import as_dtype

    sizes = {"scale": pointer_scale, "share": pointer_share}
    cache = None if pointer is None else Pointer(pointer, **{name: value for name, value in sizes.items() if value is not None})
    recall = None if memory is None else Recall(memory, clamp, same_length, segment or 128)
    chosen = _pairs(pairs, limit) if pairs is not None else []
    loaded = load_checkpoint(checkpoint, device)
    check_order(loaded, order)
    reader = Reader.of(loaded, order=order, language=language, precision=as_dtype(precision, loaded.clock.seed.device))
    if pairs is not None:
        from cloze.decoding.minimal_pairs import prefer

        method, head = method_of(loaded, order)
        with Progress(2 * len(chosen), "sentences") as progress:
            found = prefer(reader, head, chosen, method=method, report=progress)
        _print_preferences(found, method, as_json)
        return
    if answers(reader):
        from cloze.decoding.answer_scoring import score_answers

        if cache or recall:
            raise UserError("--pointer and --memory are for texts that follow each other; this network scores answers to texts.")
        given, told = _told(texts or [], file, field, target, columns)
        with Progress(len(given), "texts") as progress:
            head = prediction_head(loaded, verb="score")
            scores = score_answers(reader, head, given, told, report=progress)
        asked = [{"text": text, "target": answer} for text, answer in zip(given, told, strict=True)]
        _print(asked, scores, "log_probability", perplexity, as_json)
        return
    if columns is not None:
        raise UserError("--columns names text and answer in a file; this network scores texts alone. Leave it out.")
    method, head = method_of(loaded, order)
    given = gather(texts or [], file, field=field)
    with Progress(len(given), "texts") as progress:
        if recall is not None:
            scores = score_stream(reader, head, given, method=method, recall=recall, report=progress)
        else:
            scores = score(reader, head, given, method=method, pointer=cache, report=progress)
    _print([{"text": text} for text in given], scores, method, perplexity, as_json)


def _check(pairs: Path | None, texts: bool, pointer: int | None, memory: int | None, *, perplexity: bool) -> None:
    """Refuse options that go ill together."""
    from cloze.errors import UserError

    if pairs is not None and texts:
        raise UserError("give --pairs or texts, not both.")
    if (pairs is not None) + (pointer is not None) + (memory is not None) > 1:
        raise UserError("--pairs scores each sentence alone, --pointer and --memory remember the texts before. Give one of them.")
    if pairs is not None and perplexity:
        raise UserError("--perplexity is one figure for all texts; --pairs counts preferences. Give one of them.")


def _check_beside(pointer: int | None, cached: Sequence[object], memory: int | None, reading: Sequence[object]) -> None:
    """Refuse what says how a pointer or a memory works where there is none: it would change nothing."""
    from cloze.errors import UserError

    if pointer is None and any(value is not None for value in cached):
        raise UserError("--pointer-scale and --pointer-share say how --pointer works; give that too, such as --pointer 500.")
    if memory is None and any(value is not None for value in reading):
        raise UserError("--clamp, --same-length and --segment say how --memory is read; give that too, such as --memory 640.")


def _told(given: list[str], file: str | None, field: str, target: str, columns: str | None) -> tuple[list[str], list[str]]:
    """Texts and answers: lines with a tab between them, or the columns of a table."""
    from cloze.decoding.answer_scoring import split_pairs
    from cloze.decoding.texts import gather, is_json_lines
    from cloze.errors import UserError

    names = [Path(file).with_suffix("").name if Path(file).suffix in (".gz", ".xz") else Path(file).name] if file else []
    if given or file is None or not (is_json_lines(file) or names[0].endswith((".tsv", ".tab", ".csv"))):
        return split_pairs(gather(given, file))
    from cloze.tasks.table import read_table

    table = read_table(file, columns=columns.split(",") if columns else None)
    if not {field, target} <= set(table.columns):
        raise UserError(
            f"{file}: expected the columns {field} and {target}, found: {', '.join(table.columns)}.\n"
            "  Name them with --field and --target; if the file has no header, name its columns: --columns text,target"
        )
    return table.column(field, "--field"), table.column(target, "--target")


def _print(asked: list[dict[str, str]], scores: Sequence[Score], method: str, perplexity: bool, as_json: bool) -> None:
    import json
    from math import exp

    if perplexity:
        total, tokens = sum(one.score for one in scores), sum(one.tokens for one in scores)
        found = exp(min(-total / tokens, 700.0)) if tokens else None
        record = {"perplexity": found, "score": total, "tokens": tokens, "texts": len(scores), "method": method}
        shown = "unknown" if found is None else f"{found:.4f}"
        print(json.dumps(record) if as_json else f"perplexity {shown} over {tokens} tokens of {len(scores)} texts ({method})")
        return
    for words, one in zip(asked, scores, strict=True):
        if as_json:
            record = {**words, "score": one.score, "tokens": one.tokens, "cut": one.cut, "method": method}
            print(json.dumps(record, ensure_ascii=False))
        else:
            print("\t".join([f"{one.score:.4f}", str(one.tokens), *words.values()]))


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
