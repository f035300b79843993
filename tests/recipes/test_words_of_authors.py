"""Recipes whose authors' code splits text at white space alone name the option that reads such text as they do."""

from __future__ import annotations

import pytest

from cloze.recipe.load import folders_of_recipes, load_recipe, read_builtin
from cloze.text import train

OPTION = "text.tokenizer.words.split=whitespace"
NAMING = [name for name in folders_of_recipes() if f"--set {OPTION}" in read_builtin(name)]
LINE = "mr. <unk> was n't paid $ N a share & co. said"  # as the Penn Treebank of language models is cut


def test_the_recurrent_models_of_text_that_is_cut_name_the_option() -> None:
    assert sorted(NAMING) == ["awd-lstm", "context2vec", "elmo", "lstm", "lstm-char", "siatl", "skip-thought"]


@pytest.mark.parametrize("name", NAMING)
def test_with_the_option_words_are_those_between_spaces_and_without_it_marks_are_words(name: str) -> None:
    def words(*overrides: str) -> set[str]:
        (spec,) = load_recipe(name, overrides=["text.tokenizer.words.min_count=1", *overrides]).texts.values()
        tokenizer = train(spec, [LINE])
        return set(tokenizer.spellings[len(tokenizer.special_ids) :])

    lowered = name in {"context2vec", "siatl", "skip-thought"}  # as in their code or data
    assert words(OPTION) == set((LINE.lower() if lowered else LINE).split())
    assert {"<", "unk", ">", "'", "."} <= words()


def test_the_translator_of_cove_reads_lower_case_as_the_commands_of_its_authors_do() -> None:
    (spec,) = load_recipe("cove", overrides=["text.tokenizer.words.min_count=1"]).texts.values()
    assert {"die", "see", "war", "öde"} <= set(train(spec, ["Die See war ÖDE ."]).spellings)
