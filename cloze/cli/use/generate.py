"""`cloze generate`: continue texts, or answer them with a network that writes a text of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.options import Encoding, WithFiles
from cloze.errors import Phrase, UserError, spelled_by

if TYPE_CHECKING:
    from cloze.decoding.generating.drafting import Draft
    from cloze.decoding.generating.generation import Generated


def _as_options(phrase: Phrase) -> str:
    """How the command line writes a phrase that names arguments of `Model.generate`."""
    return phrase.naming(replace(phrase.parameter, style="option"))


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Texts to continue or to answer; none: start from an empty text.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="A prompt per line, or a table; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The column with the prompt.")] = "text",
    tokens: Annotated[int, typer.Option(min=1, help="At most this many new tokens.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of sampling; 0 always takes the most probable token.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="… from the fewest tokens of this probability.")] = None,
    min_p: Annotated[float | None, typer.Option(help="… from tokens with at least this share of the best token's.")] = None,
    typical_p: Annotated[float | None, typer.Option(help="… from those near the entropy with this total.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")] = False,
    beams: Annotated[int | None, typer.Option(min=1, help="Use beam search with this many beams.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="For diverse beam search: the number of groups.")] = None,
    diversity: Annotated[float | None, typer.Option(help="Penalty for other groups' tokens; default: 0.5.")] = None,
    sampled: Annotated[bool, typer.Option("--sampled", help="Sample the beams instead of taking the best.")] = False,
    length_penalty: Annotated[float, typer.Option(help="For beam search: above 0 favours long texts.")] = 1.0,
    early: Annotated[bool, typer.Option("--early", help="For beam search: stop when all beams end.")] = False,
    no_repeat: Annotated[int, typer.Option(min=0, help="Repeat no sequence of this many tokens; 0: no limit.")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: tokens that already occurred become less probable.")
    ] = 1.0,
    min_tokens: Annotated[int, typer.Option(min=0, help="Generate at least this many new tokens.")] = 0,
    ban: Annotated[list[str] | None, typer.Option(help="A word that is never written; repeatable.")] = None,
    first: Annotated[str | None, typer.Option(help="The token to begin with.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End a text after this string; repeatable.")] = None,
    draft: Annotated[Path | None, typer.Option(help="Speculative decoding: a smaller checkpoint that proposes tokens.")] = None,
    draft_tokens: Annotated[int | None, typer.Option(min=1, help="With --draft: tokens per proposal; default: 5.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Continuations per prompt; with --beams the best ones.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print one text while it is being generated.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed: equal seeds give equal texts.")] = 0,
    language: Annotated[str | None, typer.Option(help="One of several languages; default: the first.")] = None,
    to: Annotated[str | None, typer.Option(help="The language to write, for translators.")] = None,
    items: Annotated[list[str] | None, typer.Option("--items", help="Items of a picture: [NAME=]FILE.")] = None,
    picture: Annotated[str | None, typer.Option(help="The key of the picture in --items.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per continuation.")] = False,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Continue or answer texts. Example: cloze generate RUN "In the beginning" --top-p 0.9 --tokens 100"""
    from cloze.decoding.texts import gather

    if greedy and temperature not in (0.0, 1.0):
        raise UserError(f"--greedy is the same as --temperature 0, not {temperature:g}. Leave one of them out.")
    inputs = gather(prompts or [], file, field=field) if prompts or file else [""]
    inputs = [prompt for prompt in inputs for _ in range(1 if beams else count)]

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.generating.generation import generate
    from cloze.decoding.generating.options import WritingOptions, parts_of
    from cloze.decoding.generating.sequence import answers
    from cloze.decoding.generating.streaming import Streamed
    from cloze.decoding.pictures import shown_picture
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.reader_and_head import to_generate

    with spelled_by(_as_options):
        loaded = load_checkpoint(checkpoint, device)
        reader, head, _ = to_generate(loaded, language=language, to=to)
        reader = replace(reader, pictures=shown_picture(loaded, items or [], picture))
        helper = _draft(draft, draft_tokens, device, language, to)
    options = WritingOptions(
        temperature=0.0 if greedy else temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p, beams=beams,
        best=count if beams else 1, groups=groups or 1, diversity=diversity, sampled=sampled, length_penalty=length_penalty,
        early=early, no_repeat=no_repeat, min_tokens=min_tokens, repetition_penalty=repetition_penalty,
        ban=ban or [], first=first, stop=stop or [],
    )
    if stream and (len(inputs) != 1 or beams or as_json):
        raise UserError("--stream shows one text as it is sampled. Give one prompt, without --count, --beams and --json.")
    with spelled_by(_as_options), DecodingProgress(0 if stream else len(inputs), "texts") as progress:
        how = parts_of(reader, options)
        if stream:
            printer = Streamed(reader, inputs[0], stop=stop or [])
            texts = generate(reader, head, inputs, tokens=tokens, seed=seed, on_tokens=printer, draft=helper, **how)
            printer.close()
            _note_cut(texts)
            return
        texts = generate(reader, head, inputs, tokens=tokens, seed=seed, report=progress, draft=helper, **how)
    if helper is not None and helper.proposed:
        share = helper.accepted / helper.proposed
        typer.echo(f"draft: {share:.0%} of {helper.proposed:,} proposed tokens were accepted", err=True)
    _print(texts, answers=answers(reader), as_json=as_json)
    ends = sum(continuation.stopped == "max_length" for continuation in texts)
    if ends:
        typer.echo(
            f"note: {ends} of {len(texts)} texts end before --tokens {tokens}: the network reads no more tokens.", err=True
        )


def _note_cut(texts: Sequence[Generated]) -> None:
    from cloze.decoding.generating.generation import remark_on_cut

    remark = remark_on_cut(texts)
    if remark is not None:
        typer.echo(f"note: {remark}", err=True)


def _draft(checkpoint: Path | None, tokens: int | None, device: str, language: str | None, to: str | None) -> Draft | None:
    """What proposes tokens."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.generating.drafting import Draft
    from cloze.decoding.reader_and_head import to_generate

    if checkpoint is None:
        if tokens is not None:
            raise UserError("--draft-tokens configures --draft. Name the checkpoint that proposes tokens: --draft CHECKPOINT")
        return None
    ready = to_generate(load_checkpoint(checkpoint, device), language=language, to=to)
    return Draft(ready.reader, ready.head, tokens or 5)


def _print(generated: list[Generated], *, answers: bool, as_json: bool) -> None:
    """The texts, with a line between them, and a note on prompts that were cut."""
    import json
    from dataclasses import asdict

    for number, continuation in enumerate(generated):
        if as_json:
            print(json.dumps(asdict(continuation), ensure_ascii=False))
            continue
        if number:
            print("---")
        print(continuation.text if answers else continuation.prompt + continuation.text)
    _note_cut(generated)
