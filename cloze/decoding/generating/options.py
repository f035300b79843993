"""What users say of how to write, by name, as the parts that write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from cloze.arguments import require_types
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits
from cloze.decoding.reader import Reader
from cloze.errors import Phrase, UserError, argument


class WritingOptions(TypedDict, total=False):
    """How `generate` writes.

    Keys:
        temperature: 0 takes the most probable token; 1 samples from the model's distribution.
        top_k: Sample from the k most probable tokens only.
        top_p: Sample from the most probable tokens whose probabilities sum to p.
        min_p: Sample from the tokens at least p times as probable as the most probable one.
        typical_p: Sample from the tokens with total probability p whose information is nearest to the entropy.
        beams: Beam search with this many beams instead of sampling.
        best: How many of the beams are returned for a text.
        groups: Divide the beams into this many groups that avoid each other's tokens.
        diversity: By how much a token's score is lowered for each beam of another group that has it.
        sampled: Draw the continuations of beams, from the tokens that the options of sampling leave.
        length_penalty: The power of the length by which beam search divides a score.
        early: Stop a beam search as soon as every beam has ended.
        no_repeat: No n-gram of this length occurs twice. 0: no limit.
        min_tokens: The fewest tokens before the text may end.
        repetition_penalty: Above 1, tokens that were read or written before become less probable.
        ban: Words that are never written.
        first: The token that is written first.
        stop: The text ends after the first of these strings.
    """

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    beams: int | None
    best: int
    groups: int
    diversity: float | None
    sampled: bool
    length_penalty: float
    early: bool
    no_repeat: int
    min_tokens: int
    repetition_penalty: float
    ban: str | Sequence[str]
    first: str | None
    stop: str | Sequence[str]


_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")
_BEAMS = ("length_penalty", "early", "best", "groups", "diversity", "sampled")
_LIMITS = ("min_tokens", "no_repeat", "repetition_penalty")


def parts_of(reader: Reader, options: WritingOptions) -> dict[str, Any]:
    """The arguments `sampling`, `beams`, `limits` and `stop` of `generate`.

    Raises `UserError` for unknown names and impossible values.
    """
    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if unknown := settings.keys() - WritingOptions.__annotations__.keys():
        raise UserError(f"{min(unknown)}: no option of generate. It has {', '.join(WritingOptions.__annotations__)}.")
    require_types(WritingOptions, settings)
    stop, ban = (as_strings(settings.get(name, ())) for name in ("stop", "ban"))
    if "" in stop:
        raise UserError(
            argument("stop"), ": an empty string would end every text before its first token. Give at least one character."
        )
    limits = {name: settings[name] for name in _LIMITS if name in settings}
    if banned := [ids for word in ban for ids in _spellings(reader, word)]:
        limits["banned"] = tuple(dict.fromkeys(banned))
    if "first" in settings:
        limits["first"] = _token(reader, settings["first"])
    chosen = Limits(**limits)
    sampling = Sampling(**{name: settings[name] for name in _SAMPLING if name in settings})
    return {
        "sampling": sampling, "beams": _beams(settings, sampling), "limits": None if chosen == Limits() else chosen,
        "stop": tuple(stop),
    }  # fmt: skip


def as_strings(value: str | Sequence[str]) -> Sequence[str]:
    """Strings, of which one alone needs no list."""
    return [value] if isinstance(value, str) else value


def _beams(options: dict[str, Any], sampling: Sampling) -> Beams | None:
    """The beams; a `UserError` for options that would change nothing."""
    arguments = {name: options[name] for name in _BEAMS if name in options}
    if "beams" not in options:
        if arguments.get("best", 1) != 1:
            raise UserError("best: only a beam search finds several best texts. Add one, such as ", argument("beams", "4"), ".")
        if arguments.get("groups", 1) != 1 or "diversity" in arguments or arguments.get("sampled", False):
            raise _for_beams("groups", "diversity", "sampled")
        if arguments.get("length_penalty", 1.0) != 1.0 or arguments.get("early", False):
            raise _for_beams("length_penalty", "early")
        return None
    beams = Beams(options["beams"], **arguments)
    if "diversity" in arguments and beams.groups == 1:
        given_diversity = argument("diversity", str(beams.diversity))
        raise UserError(given_diversity, " applies between groups of beams. Add ", argument("groups", "2"), " or more.")
    if beams.sampled and sampling.temperature == 0.0:
        raise UserError(
            argument("sampled"), " draws beams at random, but at temperature 0 nothing is random. Leave out one of them."
        )
    if not beams.sampled and sampling not in (Sampling(), Sampling(temperature=0.0)):
        raise UserError(
            *_listed(*_SAMPLING), " have no effect on beam search without ", argument("sampled"), ". Add ", argument("sampled"),
            ", or leave them out.",
        )
    return beams


def _for_beams(*names: str) -> UserError:
    """The error for options that do nothing without a beam search."""
    return UserError(*_listed(*names), " are for beam search. Add ", argument("beams", "4"), ", or leave them out.")


def _listed(*names: str) -> list[Phrase]:
    """The names of options, as `temperature, top_k and top_p`."""
    leads = ["", *[", "] * (len(names) - 2), " and "]
    return [Phrase(lead, argument(name)) for lead, name in zip(leads, names, strict=True)]


def _spellings(reader: Reader, word: str) -> list[tuple[int, ...]]:
    """The ids of a word, at the start of a text and after a space."""
    spellings = {tuple(map(int, reader.tokenizer.targets.encode(text).ids)) for text in (word, f" {word}")}
    if () in spellings:
        raise UserError(f"{word!r}: a word to ban has at least one token.")
    return sorted(spellings)


def _token(reader: Reader, text: str) -> int:
    ids = reader.tokenizer.targets.encode(text).ids
    role = reader.tokenizer.roles.get(text)
    if role is None and len(ids) != 1:
        raise UserError(f"first {text!r}: this vocabulary cuts it into {len(ids)} tokens; expected a text of exactly one.")
    return int(ids[0] if role is None else role)
