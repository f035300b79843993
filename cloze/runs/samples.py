"""Samples that a run logs while it trains: filled masks, or continuations, of a few held-out sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from cloze.checkpoint.publish import reading_edits
from cloze.corpus import Store
from cloze.corpus.sources.bound import split_documents
from cloze.decoding.bound_head import bind_head
from cloze.decoding.filling import fill
from cloze.decoding.generating.generation import generate
from cloze.decoding.reader import Reader
from cloze.recipe.recipe import Recipe
from cloze.rng import permutation
from cloze.text import Tokenizer
from cloze.text.characters import alphabetic
from cloze.training.step import StepModule

_SENTENCES = 4
_TOKENS = (8, 28)


_ANSWERS = 3  # of a mask; that a word is not in the vocabulary is none


class Speaker(NamedTuple):
    """The network that can predict tokens, its head, and the states that the head reads."""

    network: str
    head: str
    order: str
    read: Mapping[str, str]


def speaker(recipe: Recipe, step: StepModule) -> Speaker | None:
    """The first pass that predicts tokens of the text it reads, if there is one."""
    for name, entry in recipe.step_entries.items():
        order = entry.order if isinstance(entry.order, str) and entry.order != "mixed" else "open"
        for run, wired in zip(entry.passes, step.entries[name], strict=True):
            network: Any = step.networks[run.network]
            for spec, pass_objective in zip(run.objectives, wired.objectives, strict=True):
                readings = {reading: path for reading, path in spec.read.items() if "." not in path}
                objective: Any = step.objectives[pass_objective.key]
                sees = [network.gives[state].sees for state in bind_head(objective, readings).reads if state in network.gives]
                if run.take or network.writes is not None or objective.usable_as(sees) != "token_prediction":
                    continue
                if order not in ("open", "left_to_right") or set(sees) & {"left_to_right", "right_to_left"} - {order}:
                    continue  # it predicts from one side of the text only (ELMo)
                return Speaker(run.network, pass_objective.key, order, readings)
    return None


def sampler(
    recipe: Recipe, step: StepModule, store: Store, tokenizer: Tokenizer, *, seed: int, tables: Mapping[str, Any] | None = None
) -> Callable[[int], Mapping[str, Any]] | None:
    """A function of the step that returns `samples`, text and answers, for the run's log; None if nothing predicts tokens."""
    chosen = speaker(recipe, step)
    texts = sentences(store, tokenizer, share=recipe.training.held_out, seed=seed)
    if chosen is None or not texts or (chosen.order == "open" and "[MASK]" not in tokenizer.roles):
        return None
    edits = reading_edits(recipe, tokenizer, tables or {})
    reader = Reader(step.networks[chosen.network], tokenizer, recipe.reading, chosen.order, input_edits=edits)
    head = bind_head(step.objectives[chosen.head], chosen.read)

    @torch.no_grad()
    def samples(at_step: int) -> Mapping[str, Any]:
        if chosen.order == "left_to_right":
            prompts = [" ".join(text.split()[:5]) for text in texts]
            continuations = generate(reader, head, prompts, tokens=20, seed=seed)
            return {"samples": [{"text": p, "answers": [g.text]} for p, g in zip(prompts, continuations, strict=True)]}
        unknown = tokenizer.literals.get("[UNK]")
        filled = fill(reader, head, texts, top=_ANSWERS + 1)
        answers = [[c for c in f.masks[0] if c.word != unknown][:_ANSWERS] for f in filled]
        return {
            "samples": [
                {"text": f.given, "answers": [f"{c.word} {c.probability:.0%}" for c in answer]}
                for f, answer in zip(filled, answers, strict=True)
            ]
        }

    return samples


def sentences(store: Store, tokenizer: Tokenizer, *, share: float, seed: int) -> list[str]:
    """A few sentences, from held-out documents where there are any, each with its longest inner word masked."""
    store = store.sample
    parts = split_documents(store.documents, share)
    documents = parts["held_out"] if len(parts["held_out"]) else parts["train"]
    texts: list[str] = []
    for document in documents[permutation(len(documents), seed, "samples")][:200]:
        first, last = store.document_sentences[document], store.document_sentences[document + 1]
        for sentence in range(int(first) + 1, int(min(last, first + 4))):  # the first is often a title
            start, stop = store.sentence_starts[sentence], store.sentence_starts[sentence + 1]
            if _TOKENS[0] <= stop - start <= _TOKENS[1]:
                text = _masked(np.asarray(store.tokens[start:stop]), store.words(np.arange(start, stop)), tokenizer)
                if text is not None:
                    texts.append(text)
                    break
        if len(texts) == _SENTENCES:
            break
    return texts


def _masked(ids: np.ndarray, starts: np.ndarray, tokenizer: Tokenizer) -> str | None:
    """The sentence as text, with the longest word of one piece behind its first word masked; the plain text without a mask."""
    if "[MASK]" not in tokenizer.roles:
        return tokenizer.decode(ids)
    indices = np.flatnonzero(starts & np.append(starts[1:], True))
    words = {start: tokenizer.decode(ids[start : start + 1]).strip() for start in indices.tolist() if 0 < start < len(ids) - 1}
    words = {position: word for position, word in words.items() if alphabetic(word)}
    if not words:
        return None
    longest = max(words, key=lambda i: len(words[i]))
    before, after = tokenizer.decode(ids[:longest]), tokenizer.decode(ids[longest + 1:])
    return f"{before} {tokenizer.literals['[MASK]']} {after}"
