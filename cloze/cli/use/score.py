"""`cloze score`: how probable sentences are; accuracy on minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.options import Encoding, Precision, WithFiles, with_options

if TYPE_CHECKING:
    from cloze.decoding.reader_and_head import Ready
    from cloze.decoding.scores.minimal_pairs import Preference
    from cloze.decoding.scores.perplexity import Perplexity
    from cloze.decoding.scores.pointer_cache import Pointer
    from cloze.decoding.scores.scoring import Score
    from cloze.decoding.scores.stream_scoring import Recall
    from cloze.decoding.scores.windows import Windows

_OF_CORPORA = frozenset({
    "checkpoint", "corpus", "most", "text_format", "device", "stride", "max_length", "precision", "as_json", "encoding",
    "with_files",
})  # fmt: skip
_SPELLINGS = {"texts": "texts", "most": "--bytes", "text_format": "--format"}  # options that are not written as their names


@dataclass(frozen=True)
class ScoreOptions:
    """What `cloze score` is asked for."""

    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")]
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; none: --file, --corpus, --pairs or standard input.")] = None
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", help="Bits per byte of files, folders; repeatable.")
    ] = None
    most: Annotated[int | None, typer.Option("--bytes", min=1, help="With --corpus: read this many bytes of each.")] = None
    text_format: Annotated[str, typer.Option("--format", help="With --corpus: the format of the text.")] = "auto"
    file: Annotated[str | None, typer.Option(help="A text per line, or a table; - for stdin.")] = None
    field: Annotated[str, typer.Option(help="The column with the text.")] = "text"
    target: Annotated[str, typer.Option(help="The column with answers.")] = "target"
    columns: Annotated[str | None, typer.Option(help="Columns of a file without a header: a,b,c.")] = None
    pairs: Annotated[Path | None, typer.Option(help="Minimal pairs: JSON lines, folder, .tar.xz.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="With --pairs: at most this many pairs of each file.")] = None
    language: Annotated[str | None, typer.Option(help="The language of the texts.")] = None
    to: Annotated[str | None, typer.Option(help="The language of the answers.")] = None
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu"
    order: Annotated[str | None, typer.Option(help="How to read: open, left_to_right or source_to_target.")] = None
    stride: Annotated[int | None, typer.Option(help="Tokens between windows; default: half of one.")] = None
    max_length: Annotated[int | None, typer.Option(help="Tokens per window; default: as many as the network reads.")] = None
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts and answers that are too long.")] = False
    pointer: Annotated[int | None, typer.Option(min=1, help="Mix in a pointer cache of this many tokens.")] = None
    pointer_scale: Annotated[float | None, typer.Option(help="With --pointer: the sharpness, usually 1.")] = None
    pointer_share: Annotated[
        float | None, typer.Option(min=0, help="With --pointer: the weight in the mixture, usually 0.1.")
    ] = None
    memory: Annotated[
        int | None, typer.Option(min=0, help="Read all texts as one stream with a memory of this many tokens.")
    ] = None
    clamp: Annotated[int | None, typer.Option(min=1, help="With --memory: the largest distance.")] = None
    same_length: Annotated[
        bool, typer.Option("--same-length", help="With --memory: all tokens see equally many.")
    ] = False
    segment: Annotated[int | None, typer.Option(min=1, help="For streams: tokens per step.")] = None
    ends: Annotated[bool, typer.Option("--ends", help="For streams: score every text's [EOS], too.")] = False
    perplexity: Annotated[bool, typer.Option("--perplexity", help="Print perplexity: per token, word and byte.")] = False
    precision: Precision = "fp32"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    encoding: Encoding = None
    with_files: WithFiles = None


@with_options(ScoreOptions)
def command(options: ScoreOptions) -> None:
    """Score texts, or count how often the acceptable sentence of a pair scores higher (a tie counts as a failure).

    The score depends on the network: the log-probability of the text if it reads from left to right, the pseudo-log-likelihood
    (each token masked alone) if it predicts masked tokens, the log-probability that every token is original if it is a
    discriminator. Longer texts than the network reads are scored in overlapping windows. A network that writes answers (t5,
    bart; unilm with --order source_to_target) scores the answer: TEXT<tab>ANSWER.

    --corpus prints figures that are comparable between vocabularies: cloze score RUN --corpus papers.txt --corpus news.txt
    """
    if options.corpus:
        _score_corpora(options, options.corpus)
        return
    _check(options)

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.reader_and_head import to_score
    from cloze.decoding.scores.minimal_pairs import read_pairs
    from cloze.decoding.scores.pointer_cache import Pointer
    from cloze.decoding.scores.windows import Windows

    sizes = {"scale": options.pointer_scale, "share": options.pointer_share}
    cache = None
    if options.pointer is not None:
        cache = Pointer(options.pointer, **{name: value for name, value in sizes.items() if value is not None})
    pairs = None if options.pairs is None else read_pairs(options.pairs, limit=options.limit)
    loaded = load_checkpoint(options.checkpoint, options.device, precision=options.precision)
    ready = to_score(loaded, order=options.order, language=options.language, to=options.to)
    windows = Windows(options.max_length, options.stride)
    if pairs is not None:
        _score_pairs(loaded, ready, pairs, windows, options.as_json)
    elif ready.method is None:
        _check_answers(options)
        _score_answers(ready, options)
    else:
        _score_texts(loaded, ready, options, windows, cache)


def _names_of_set(options: ScoreOptions, *names: str) -> list[str]:
    """How the user writes those of the options `names` whose values are not the defaults."""
    values = {field.name: getattr(options, field.name) for field in fields(options) if field.name in names}
    defaults = {field.name: field.default for field in fields(options)}
    changed = [name for name, value in values.items() if value != defaults[name] and value not in (None, [])]
    return [_SPELLINGS.get(name, f"--{name.replace('_', '-')}") for name in changed]


def _score_corpora(options: ScoreOptions, paths: Sequence[str]) -> None:
    """The figures of running texts."""
    import json

    from cloze.checkpoint.build import load_checkpoint
    from cloze.corpus.readers import read_documents
    from cloze.corpus.readers.formats import with_column
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.scores.text_figures import BITS, PSEUDO, figures_of, first_bytes, units_of
    from cloze.decoding.scores.windows import Windows
    from cloze.errors import UserError

    wrong = _names_of_set(options, *(field.name for field in fields(options) if field.name not in _OF_CORPORA))
    if wrong:
        raise UserError(f"--corpus measures running text as a whole; {wrong[0]} does not go with it. Leave one of them out.")
    text_format = with_column(options.text_format, None, options.encoding)
    texts = {
        path: first_bytes((doc.sentences for doc in read_documents([path], format=text_format)), options.most)
        for path in paths
    }
    loaded = load_checkpoint(options.checkpoint, options.device, precision=options.precision)
    rows = {}
    for path, documents in texts.items():
        with DecodingProgress(*units_of(loaded, documents)) as progress:
            rows[path] = figures_of(
                loaded, documents, windows=Windows(options.max_length, options.stride), report=progress
            )
    _note_length(loaded, max(row.longest for row in rows.values()), options)
    if options.as_json:
        typer.echo(json.dumps({path: row.record() for path, row in rows.items()}, indent=2, ensure_ascii=False))
        return
    width = max(map(len, rows))
    kind = next((BITS[row.method] for row in rows.values() if row.method is not None), "bits per byte")
    typer.echo(f"{'':<{width}}  bytes       {kind}  tokens per word  unknown tokens")
    for path, row in rows.items():
        bits = "–" if row.bits_per_byte is None else f"{row.bits_per_byte:.4f}"
        typer.echo(f"{path:<{width}}  {row.bytes:<10,}  {bits:<{len(kind)}}  {row.tokens_per_word:<15.4f}  {row.unknown:,}")
    for line in dict.fromkeys(row.why or PSEUDO * (row.method == "pseudo_log_likelihood") for row in rows.values()):
        if line:
            typer.echo(line)


def _note_length(loaded: Any, longest: int, options: ScoreOptions) -> None:
    """Say which windows divide long texts unless the user has chosen them, and if more tokens were read at once than any row of
    training has, where positions are not learned."""
    from cloze.decoding.lengths import trained_length
    from cloze.decoding.reader import Reader

    if options.max_length is not None:
        return
    reader = Reader.of(loaded)
    most, trained, added = reader.max_length, trained_length(loaded.recipe), reader.single_layout.added
    size = reader.max_tokens(most)
    if size is not None and longest + max(added, 1) > size:  # without a frame, the first token is not scored
        stride = max(1, (size - added) // 2) if options.stride is None else options.stride
        typer.echo(
            f"note: texts of more than {size - added:,} tokens were read in windows of that many, each {stride:,} after the one "
            "before. --max-length and --stride set others.",
            err=True,
        )
    if most is not None and trained is not None and min(longest, most) > trained:
        typer.echo(
            f"note: up to {min(longest, most):,} tokens were read at once, and this run was trained on at most {trained:,}, so "
            f"scores of longer texts may be too low.\n  Read them in windows: --max-length {trained}",
            err=True,
        )


def _score_pairs(loaded: Any, ready: Ready, chosen: list[Any], windows: Windows, as_json: bool) -> None:
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.reader import refuse_answering
    from cloze.decoding.scores.minimal_pairs import prefer
    from cloze.errors import UserError

    reader, head, method = ready
    if method is None:
        refuse_answering(loaded, verb="score")
        raise UserError("--pairs scores single sentences; --order source_to_target scores answers to texts. Omit one of them.")
    with DecodingProgress(2 * len(chosen), "sentences") as progress:
        preferences = prefer(reader, head, chosen, method=method, windows=windows, report=progress)
    _print_preferences(preferences, method, as_json)


def _score_answers(ready: Ready, options: ScoreOptions) -> None:
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.scores.answer_scoring import score_answers
    from cloze.decoding.scores.perplexity import Perplexity

    texts, targets = _targets(options)
    with DecodingProgress(len(texts), "texts") as progress:
        scores = score_answers(ready.reader, ready.head, texts, targets, truncate=options.truncate, report=progress)
    cut = [score.cut for score in scores if score.cut]
    if cut:
        typer.echo(f"cut: {sum(cut)} tokens of {len(cut)} of {len(scores)} texts and answers did not fit", err=True)
    if options.perplexity:
        _print_perplexity(Perplexity.of(targets, scores, ends=True), "log_probability", options.as_json)
    else:
        records = [{"text": text, "target": answer} for text, answer in zip(texts, targets, strict=True)]
        _print(records, targets, scores, "log_probability", options.as_json)


def _score_texts(
    loaded: Any, ready: Ready, options: ScoreOptions, windows: Windows, cache: Pointer | None
) -> None:
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.scores.perplexity import Perplexity
    from cloze.decoding.scores.scoring import score
    from cloze.decoding.scores.stream_scoring import score_stream
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    reader, head, method = ready
    assert method is not None  # it scores texts
    if options.columns is not None:
        raise UserError("--columns names text and answer in a file; this network scores texts alone. Leave it out.")
    if options.truncate:
        raise UserError("--truncate cuts answers and what they answer; this network scores texts alone, whole. Leave it out.")
    texts = gather(options.texts or [], options.file, field=options.field)
    recall = _recall(reader, options, cache, windows)
    if options.perplexity and method == "originality":
        raise UserError("--perplexity is for networks that predict tokens; a discriminator only judges them. Omit it.")
    with DecodingProgress(len(texts), "texts") as progress:
        if recall is not None:
            scores = score_stream(
                reader, head, texts, method=method, recall=recall, pointer=cache, ends=options.ends, report=progress
            )
        else:
            scores = score(reader, head, texts, method=method, windows=windows, pointer=cache, report=progress)
            _note_length(loaded, max((score.tokens for score in scores), default=0), options)
    if options.perplexity:
        _print_perplexity(Perplexity.of(texts, scores, ends=options.ends), method, options.as_json)
    else:
        _print([{"text": text} for text in texts], texts, scores, method, options.as_json)


def _recall(reader: Any, options: ScoreOptions, cache: Pointer | None, windows: Windows) -> Recall | None:
    """How the texts are read as one stream: if a memory is asked for, or a pointer for a network that has a memory; else None."""
    from cloze.decoding.scores.stream_scoring import Recall, remembers
    from cloze.errors import UserError

    if options.memory is None and not (cache is not None and remembers(reader.network)):
        if options.segment is not None or options.ends:
            raise UserError(
                "--segment and --ends are for texts that are read as one stream. Add --memory too, such as --memory 640, or "
                "--pointer with a network that remembers."
            )
        return None
    if windows.max_length is not None or windows.stride is not None:
        raise UserError("--stride and --max-length are for texts read one by one; for a stream, --segment sets its steps.")
    return Recall(options.memory, options.clamp, options.same_length, options.segment or 128)


def _check(options: ScoreOptions) -> None:
    """Refuse options that contradict each other, or that change nothing without a pointer or a memory."""
    from cloze.errors import UserError

    pairs, pointer, memory = options.pairs is not None, options.pointer is not None, options.memory is not None
    if of_corpora := _names_of_set(options, "most", "text_format"):
        raise UserError(f"{of_corpora[0]} says how --corpus is read. Add --corpus, or leave it out.")
    if options.limit is not None and not pairs:
        raise UserError("--limit bounds the pairs of each file of --pairs. Leave it out.")
    if pairs and (options.texts or options.file):
        raise UserError("give --pairs or texts, not both.")
    if pairs and (pointer or memory):
        raise UserError("--pairs scores each sentence alone, --pointer and --memory remember the texts before. Omit one of them.")
    if pairs and (idle := _names_of_set(options, "segment", "ends", "truncate", "columns", "field", "target")):
        raise UserError(f"--pairs scores whole sentences, each alone; {idle[0]} does not go with it. Leave one of them out.")
    if pairs and options.perplexity:
        raise UserError("--perplexity is one figure for all texts; --pairs counts preferences. Omit one of them.")
    if not pointer and (options.pointer_scale is not None or options.pointer_share is not None):
        raise UserError("--pointer-scale and --pointer-share configure --pointer. Add it, such as --pointer 500.")
    if not memory and (options.clamp is not None or options.same_length):
        raise UserError("--clamp and --same-length configure --memory. Add it, such as --memory 640.")


def _check_answers(options: ScoreOptions) -> None:
    """Refuse what is for texts that follow each other, or for long ones."""
    from cloze.errors import UserError

    if options.pointer or options.memory is not None or options.segment is not None or options.ends:
        raise UserError(
            "--pointer, --memory, --segment and --ends are for texts that follow each other; this network scores answers."
        )
    if options.max_length is not None or options.stride is not None:
        raise UserError(
            "--stride and --max-length divide a long text; this network scores answers to texts, which --truncate cuts."
        )


def _targets(options: ScoreOptions) -> tuple[list[str], list[str]]:
    """Texts and answers: lines with a tab between them, or the columns of a table."""
    from cloze.decoding.scores.answer_scoring import split_pairs
    from cloze.decoding.texts import gather, holds_rows
    from cloze.errors import UserError

    texts, file = options.texts or [], options.file
    if texts or file is None or not holds_rows(file):
        return split_pairs(gather(texts, file))
    from cloze.corpus.readers.labelled import read_table
    from cloze.errors import Parameter

    table = read_table(file, columns=options.columns.split(",") if options.columns else None)
    chosen = {"field": options.field, "target": options.target}
    if not {*chosen.values()} <= set(table.columns):
        raise UserError(
            f"{file}: expected the columns {options.field} and {options.target}, found: {', '.join(table.columns)}.\n"
            "  Name them with --field and --target; if the file has no header, name its columns: --columns text,target"
        )
    texts, targets = (table.column(column, Parameter(name, "NAME", "option")) for name, column in chosen.items())
    return texts, targets


def _print(records: list[dict[str, str]], scored: list[str], scores: Sequence[Score], method: str, as_json: bool) -> None:
    import json

    from cloze.decoding.scores.perplexity import Perplexity

    for words, text, score in zip(records, scored, scores, strict=True):
        if as_json:
            figures = Perplexity.of([text], [score]).record()
            counts = {name: figures[name] for name in ("score", "tokens", "unknown", "words", "bytes", "characters")}
            print(json.dumps({**words, **counts, "cut": score.cut, "method": method}, ensure_ascii=False))
        else:
            print("\t".join([f"{score.score:.4f}", str(score.tokens), *words.values()]))


def _print_perplexity(perplexity: Perplexity, method: str, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps({**perplexity.record(), "method": method}))
        return
    cells = {name: "unknown" if value is None else f"{value:.4f}" for name, value in perplexity.record().items()}
    lost = f", {perplexity.unknown} of them [UNK]," if perplexity.unknown else ""
    pseudo = "pseudo-" if method == "pseudo_log_likelihood" else ""
    print(f"{pseudo}perplexity {cells['perplexity']} over {perplexity.token} tokens{lost} of {perplexity.texts} texts ({method})")
    print(f"per word   {cells['word_perplexity']} over {perplexity.word} words")
    print(f"per byte   {cells['byte_perplexity']} over {perplexity.byte} bytes: {cells['bits_per_byte']} {pseudo}bits per byte")
    bits = f"{cells['bits_per_character']} {pseudo}bits"
    print(f"per character {cells['character_perplexity']} over {perplexity.character} characters: {bits} per character")


def _print_preferences(preferences: Sequence[Preference], method: str, as_json: bool) -> None:
    from cloze.decoding.scores.minimal_pairs import overall

    total = overall(preferences)
    if as_json:
        import json

        def record(preference: Preference) -> dict[str, Any]:
            return {
                "file": preference.file, "pairs": preference.pairs, "right": preference.right, "ties": preference.ties,
                "accuracy": preference.accuracy,
            }  # fmt: skip

        print(json.dumps({"method": method, "overall": record(total), "files": [record(row) for row in preferences]}, indent=2))
        return
    width = max(len(row.file) for row in [*preferences, total])
    print(f"{'file':<{width}}  {'pairs':>6}  {'ties':>5}  accuracy")
    for row in [*preferences, total]:
        print(f"{row.file:<{width}}  {row.pairs:>6}  {row.ties:>5}  {row.accuracy:8.2%}")
