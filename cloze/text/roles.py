"""Roles of special tokens. A role is written `[MASK]`; a vocabulary may spell it `<mask>`.

`[R0]`, `[R1]`, … have no meaning and only reserve an id, as XLM's `<special0>` does. `[SOURCE]` and `[TARGET]` are the tokens of
the languages that a translator reads and writes; any token of a language may play them (`Tokenizer.speaking`). `[START]`,
`[DELIMITER]` and `[EXTRACT]` are the marks of a task in GPT (`change: [marks]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cloze.errors import RecipeError, propose

#: What stands before the spelling of pieces that no text is cut into, because they are those of another text: of Unicode's
#: private use, so that texts do not have it. A run that would be [UNK] is such a piece if that is spelled so (Marian).
HIDDEN = "\ue000"
LANGUAGE_ROLES = ("[SOURCE]", "[TARGET]")
TASK_ROLES = ("[START]", "[DELIMITER]", "[EXTRACT]")
ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]", "[EOD]", "[EOP]", *LANGUAGE_ROLES, *TASK_ROLES)
_RESERVED = re.compile(r"\[R\d+\]")

# The names under which tokenizer_config.json of Hugging Face keeps roles.
CONFIG_KEYS: Mapping[str, str] = {
    "[PAD]": "pad_token",
    "[UNK]": "unk_token",
    "[CLS]": "cls_token",
    "[SEP]": "sep_token",
    "[MASK]": "mask_token",
    "[BOS]": "bos_token",
    "[EOS]": "eos_token",
    "[SOURCE]": "src_lang",
    "[TARGET]": "tgt_lang",
}

BERT_LITERALS: Mapping[str, str] = {role: role for role in ROLES[:5]}
WORD_LITERALS: Mapping[str, str] = {role: role for role in ("[PAD]", "[UNK]", "[BOS]", "[EOS]")}
ROBERTA_LITERALS: Mapping[str, str] = {
    "[BOS]": "<s>",
    "[CLS]": "<s>",
    "[PAD]": "<pad>",
    "[EOS]": "</s>",
    "[SEP]": "</s>",
    "[UNK]": "<unk>",
    "[MASK]": "<mask>",
}
GPT2_LITERALS: Mapping[str, str] = dict.fromkeys(("[BOS]", "[EOS]", "[PAD]", "[UNK]"), "<|endoftext|>")
UNIGRAM_LITERALS: Mapping[str, str] = {
    "[PAD]": "<pad>",
    "[UNK]": "<unk>",
    "[CLS]": "[CLS]",
    "[SEP]": "[SEP]",
    "[MASK]": "[MASK]",
    "[BOS]": "<s>",
    "[EOS]": "</s>",
}
ESM_LITERALS: Mapping[str, str] = {"[CLS]": "<cls>", "[PAD]": "<pad>", "[EOS]": "<eos>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
MPNET_LITERALS: Mapping[str, str] = {**ROBERTA_LITERALS, "[UNK]": "[UNK]"}
XLM_LITERALS: Mapping[str, str] = {
    "[BOS]": "<s>",
    "[CLS]": "</s>",
    "[SEP]": "</s>",
    "[EOS]": "</s>",
    "[PAD]": "<pad>",
    "[UNK]": "<unk>",
    "[R0]": "<special0>",
    "[MASK]": "<special1>",
    **{f"[R{number}]": f"<special{number}>" for number in range(2, 10)},
}


_SPECIAL = re.compile("|".join([
    r"<extra_id_\d+>",
    *map(re.escape, sorted({
        *BERT_LITERALS.values(), *ROBERTA_LITERALS.values(), *GPT2_LITERALS.values(), *UNIGRAM_LITERALS.values(),
        *XLM_LITERALS.values(), *ESM_LITERALS.values(), *ROLES[: -len(TASK_ROLES)],
    })),
]))


def literals_in(text: str) -> list[str]:
    """The special tokens of BERT, RoBERTa, GPT-2, T5, XLM and ESM that a text contains as literals, in order.

    They are plain text to `Tokenizer.encode`, and special tokens to transformers' `AutoTokenizer`.
    """
    return _SPECIAL.findall(text) if "<" in text or "[" in text else []


def check_literals(literals: Mapping[str, str]) -> dict[str, str]:
    """The role → literal table, or a `RecipeError` naming the entry that cannot be used.

    A literal starts with a punctuation mark and has more than one character, so that plain text never produces it.
    """
    path = "text.tokenizer.special"
    for role, literal in literals.items():
        if role not in ROLES and not _RESERVED.fullmatch(role):
            raise RecipeError(f"{path}: unknown role {role!r}. {propose(role, ROLES)}")
        check_literal(role, literal, path)
    if "[UNK]" not in literals:
        raise RecipeError(f'{path}: the role [UNK] is missing; add for example "[UNK]": "<unk>".')
    return dict(literals)


def check_literal(role: str, literal: object, path: str) -> None:
    """A `RecipeError` for a special token that plain text may produce; `path` is where the recipe names it."""
    if not isinstance(literal, str) or len(literal) < 3 or literal[0].isalnum() or any(map(str.isspace, literal)):
        raise RecipeError(
            f"{path}: {role} is {literal!r}; expected at least three characters without white space, "
            f"the first of them a punctuation mark, such as {role!r} or '<{role[1:-1].lower()}>'."
        )


def check_marks(tokens: Mapping[str, str]) -> None:
    """A `RecipeError` for new special tokens of a task that have another role, or that are spelled as plain text may be."""
    path = "change.marks.tokens"
    if not tokens:
        raise RecipeError(f'{path}: expected at least one role with its new token, such as {{"[START]": "_start_"}}.')
    for role, literal in tokens.items():
        if role not in TASK_ROLES:
            raise RecipeError(f"{path}: {role!r} is not the mark of a task. {propose(role, TASK_ROLES)}")
        check_literal(role, literal, path)


def in_id_order(literals: Mapping[str, str]) -> list[str]:
    """The distinct literals in the given order, which is that of their ids."""
    return list(dict.fromkeys(literals.values()))


def guess_literals(pieces: Iterable[str]) -> dict[str, str]:
    """Roles guessed from the literals of BERT, RoBERTa, GPT-2, ESM and T5-like vocabularies, if no file names them. That of MPNet
    also has BERT's."""
    vocabulary = set(pieces)
    for table in (ESM_LITERALS, MPNET_LITERALS, BERT_LITERALS, ROBERTA_LITERALS, UNIGRAM_LITERALS, GPT2_LITERALS):
        if all(literal in vocabulary for literal in table.values()):
            return dict(table)
    tables = (UNIGRAM_LITERALS, ROBERTA_LITERALS, BERT_LITERALS)  # of several spellings in a vocabulary the last one counts
    return {role: literal for table in tables for role, literal in table.items() if literal in vocabulary}


def sentinel_literals(count: int) -> list[str]:
    """T5's names of `count` sentinels in the order of their ids: the first one, `<extra_id_0>`, has the highest."""
    if count < 0:
        raise RecipeError(f"text.tokenizer.sentinels: {count}; expected 0 or more.")
    return [f"<extra_id_{number}>" for number in reversed(range(count))]
