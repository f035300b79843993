"""`cloze generate`: continue texts with a left-to-right network, or answer them with one that writes a text of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.with_files import WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Texts to continue or to answer; none: start from an empty text.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="A file with a prompt per line, or JSON lines; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The field of a JSON line that holds the prompt.")] = "text",
    tokens: Annotated[int, typer.Option(min=1, help="At most this many new tokens.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the most probable token.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many of the most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the fewest tokens with this total probability.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")] = False,
    beams: Annotated[int | None, typer.Option(min=1, help="Use beam search with this many beams instead of sampling.")] = None,
    length_penalty: Annotated[float, typer.Option(help="For beam search: above 0 favours long texts.")] = 1.0,
    early: Annotated[bool, typer.Option("--early", help="Stop a beam search as soon as every beam has ended.")] = False,
    no_repeat: Annotated[int, typer.Option(min=0, help="Repeat no sequence of this many tokens; 0: no limit.")] = 0,
    min_tokens: Annotated[int, typer.Option(min=0, help="Generate at least this many new tokens.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Continuations per prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed: equal seeds give equal texts.")] = 0,
    language: Annotated[str | None, typer.Option(help="The language, if the network knows several; default: the first.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per continuation.")] = False,
    with_files: WithFiles = None,
) -> None:
    """Continue or answer texts. Example: cloze generate RUN "In the beginning" --top-p 0.9 --tokens 100"""
    from cloze.decoding.texts import gather

    given = gather(prompts or [], file, field=field) if prompts or file else [""]
    given = [prompt for prompt in given for _ in range(count)]

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.generation import generate
    from cloze.decoding.progress import Progress
    from cloze.decoding.ready import to_generate
    from cloze.decoding.sampling import Sampling
    from cloze.decoding.search import Beams, Limits
    from cloze.decoding.sequence import answers

    sampling = Sampling(0.0 if greedy else temperature, top_k, top_p)
    reader, head, _ = to_generate(load_checkpoint(checkpoint, device), language=language)
    search = None if beams is None else Beams(beams, length_penalty, early)
    limits = Limits(min_tokens, no_repeat) if min_tokens or no_repeat else None
    with Progress(len(given), "texts") as progress:
        made = generate(
            reader, head, given, tokens=tokens, sampling=sampling, beams=search, limits=limits, seed=seed, report=progress
        )
    for number, one in enumerate(made):
        if as_json:
            import json
            from dataclasses import asdict

            print(json.dumps(asdict(one), ensure_ascii=False))
            continue
        if number:
            print("---")
        print(one.text if answers(reader) else one.prompt + one.text)

