"""Words by their characters: the numbers of characters, convolutions against a slow loop, highways, letter trigrams."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.blocks.inputs.characters import CharacterTable, CharCNN, Highway, LetterTrigrams
from cloze.networks.spelling import NOTHING, PADDING, spell, spell_vocabulary, trigrams, unknown_id
from tests.making import network_of

WORDS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "cat", "act", "dog", "über", "extraordinarily")
FILTERS = [(1, 4), (2, 5), (3, 6)]


def small(**changed: object) -> CharCNN:
    arguments: dict[str, object] = {"embedding_width": 3, "filters": FILTERS, "highways": 2, "per_word": 12}
    torch.manual_seed(0)
    made = CharCNN(**{**arguments, **changed}, vocab_size=len(WORDS), spellings=WORDS)  # type: ignore[arg-type]
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.double()


def slow(part: CharCNN, characters: list[int]) -> Tensor:
    """One word, number by number, as Kim et al. write it."""
    vectors = [part.table.weight[c] for c in characters]
    found = []
    for conv in part.filters:
        weight, bias, span = conv.weight, conv.bias, conv.weight.shape[2]  # type: ignore[union-attr]
        for h in range(len(weight)):  # type: ignore[arg-type]
            values = []
            for start in range(len(characters) - span + 1):
                total = bias[h].clone()  # type: ignore[index]
                for k in range(span):
                    total = total + (weight[h, :, k] * vectors[start + k]).sum()  # type: ignore[index]
                values.append(torch.tanh(total) if part.activation == "tanh" else total.clamp(min=0))
            found.append(torch.stack(values).max())
    y = torch.stack(found)
    for highway in part.highways:
        g = 1 / (1 + torch.exp(-(highway.gate.weight @ y + highway.gate.bias)))  # type: ignore[union-attr,operator]
        y = g * (highway.change.weight @ y + highway.change.bias).clamp(min=0) + (1 - g) * y  # type: ignore[union-attr,operator]
    return y


def test_a_word_is_spelled_as_in_the_released_models() -> None:
    assert spell(["cat"], 8).tolist() == [[259, 100, 98, 117, 260, 261, 261, 261]]
    assert spell(["é"], 6).tolist() == [[259, 1 + 0xC3, 1 + 0xA9, 260, 261, 261]]
    assert spell(["abcdefgh"], 5).tolist() == [[259, 98, 99, 100, 260]]  # what does not fit between the marks is cut
    made = spell_vocabulary(["[PAD]", "[BOS]", "</s>", "[MASK]", "a"], 4).tolist()
    assert made == [[0] * 4, [259, 257, 260, 261], [259, 258, 260, 261], [259, 262, 260, 261], [259, 98, 260, 261]]
    assert unknown_id(["<s>", "<unk>", "a"]) == 1 and unknown_id(["[PAD]", "a", "[UNK]"]) == 2 and unknown_id(None) == 1
    with pytest.raises(RecipeError, match="at least 3"):
        spell(["a"], 2)


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=30).filter(lambda t: max(t) < "\ud800" or min(t) > "\udfff"))
def test_every_text_can_be_spelled(word: str) -> None:
    (row,) = spell([word], 50).tolist()
    data = word.encode("utf-8", "replace")[:48]
    assert row == [259, *(byte + 1 for byte in data), 260, *([261] * (48 - len(data)))]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_convolutions_are_those_of_a_slow_loop(activation: str) -> None:
    part = small(activation=activation)
    found = part(torch.arange(len(WORDS))[None])[0]
    for number, row in enumerate(part.spelled.tolist()):
        torch.testing.assert_close(found[number], slow(part, row), rtol=1e-10, atol=1e-12)


def test_the_vector_of_padding_is_zero_and_learns_nothing_where_the_recipe_says_so() -> None:
    """As `char_vecs.weight[1]:zero()` around every step of yoonkim/lstm-char-cnn, `main.lua`."""
    part = small(activation="tanh", padding="zero")
    with torch.no_grad():
        part.table.weight[NOTHING] = 0.0  # as it is drawn
    found = part(torch.arange(len(WORDS))[None])[0]
    found[4:].square().sum().backward()
    assert part.table.weight.grad is not None and not part.table.weight.grad[PADDING].any()
    with torch.no_grad():
        part.table.weight[PADDING] = 0.0
    for number, row in enumerate(part.spelled.tolist()):
        torch.testing.assert_close(found[number], slow(part, row), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found[4], small(activation="tanh")(torch.tensor([[4]]))[0, 0])


def test_a_word_is_the_same_in_any_batch_and_however_often_it_stands_there() -> None:
    part = small()
    alone = part(torch.tensor([[4]]))
    among = part(torch.tensor([[4, 8, 4], [6, 4, 0]]))
    for place in ((0, 0), (0, 2), (1, 1)):
        torch.testing.assert_close(among[place], alone[0, 0], rtol=1e-12, atol=1e-12)


def test_characters_override_the_vocabulary_where_they_are_given() -> None:
    part = small()
    characters = torch.zeros(1, 3, 12, dtype=torch.long)
    characters[0, 1] = torch.from_numpy(spell(["dog"], 12)[0].astype(int))
    found = part(torch.tensor([[1, 1, 4]]), characters)
    torch.testing.assert_close(found[0, 1], part(torch.tensor([[6]]))[0, 0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[0, [0, 2]], part(torch.tensor([[1, 4]]))[0], rtol=1e-12, atol=1e-12)


def test_anagrams_are_told_apart_by_filters_of_two_characters_and_not_of_one() -> None:
    for filters, same in (([(1, 8)], True), ([(1, 8), (2, 8)], False)):
        found = small(filters=filters)(torch.tensor([[4, 5]]))[0]
        assert torch.allclose(found[0], found[1]) is same


def test_parameters_of_kim_et_al() -> None:
    for numbers, highways, width, convolutions, high in (
        ([(w, 25 * w) for w in range(1, 7)], 1, 525, 34_650, 552_300),
        ([(w, min(200, 50 * w)) for w in range(1, 8)], 2, 1100, 77_600, 4_844_400),
    ):
        with torch.device("meta"):
            part = CharCNN(embedding_width=15, filters=numbers, highways=highways, activation="tanh", vocab_size=3)
        assert part.width == width
        assert sum(p.numel() for p in part.filters.parameters()) == convolutions
        assert sum(p.numel() for p in part.highways.parameters()) == high


def test_a_highway_by_hand() -> None:
    part = Highway(1).double()
    torch.nn.init.zeros_(part.change.weight)
    torch.nn.init.zeros_(part.gate.weight)
    torch.nn.init.constant_(part.change.bias, 0.5)
    x = torch.ones(1, 1, dtype=torch.float64)
    assert part.gate.bias.item() == -2.0
    assert torch.sigmoid(part.gate.bias).item() == pytest.approx(0.119203, abs=1e-6)
    assert part(x).item() == pytest.approx(0.940399, abs=1e-6)
    torch.nn.init.constant_(part.gate.bias, -math.inf)
    assert part(x).item() == 1.0


def test_filters_that_fit_no_word_and_a_mask_without_a_row_are_refused() -> None:
    with pytest.raises(RecipeError, match="at most 12 characters"):
        small(filters=[(13, 2)])
    with pytest.raises(RecipeError, match="mask: true"):
        CharCNN(filters=[(1, 2)], vocab_size=1, spellings=["[MASK]"])
    assert CharCNN(filters=[(1, 2)], mask=True, vocab_size=1, spellings=["[MASK]"]).table.num_embeddings == 263


def test_letter_trigrams_of_a_word_with_its_marks() -> None:
    codes = trigrams(spell(["cat"], 8))[0]
    a = dict(zip("#cat$", (259, 100, 98, 117, 260), strict=True))
    expected = [(a[x] * 263 + a[y]) * 263 + a[z] for x, y, z in ("#ca", "cat", "at$")]
    assert codes.tolist() == [*expected, -1, -1, -1]


def test_a_word_is_the_sum_of_its_trigrams_each_once() -> None:
    words = ("[PAD]", "[UNK]", "ab", "abab", "ababab")
    part = LetterTrigrams(width=4, size=12, per_word=10, vocab_size=5, spellings=words)
    found = part(torch.arange(5)[None])[0]
    rows = {int(code): part.table.weight[number] for number, code in enumerate(part.known.tolist())}
    for number in (2, 3, 4):
        codes = {int(c) for c in trigrams(part.spelled[number : number + 1].numpy())[0] if c >= 0}
        assert len(codes) == (2 if number == 2 else 4)
        torch.testing.assert_close(found[number], torch.stack([rows[c] for c in codes]).sum(0))
    assert found[0].eq(0).all()  # padding holds no trigram
    torch.testing.assert_close(found[3], found[4])  # abab and ababab hold the same trigrams
    assert part.collisions == 1 and "collisions=1" in repr(part)


def test_rare_and_unseen_trigrams_share_the_last_row() -> None:
    words = ("[PAD]", "[UNK]", "ab", "abc", "abd")
    part = LetterTrigrams(width=3, size=2, per_word=8, vocab_size=5, spellings=words)
    (kept,) = part.known.tolist()
    assert kept == trigrams(spell(["ab"], 8))[0][0]  # #ab stands in three words
    characters = torch.from_numpy(spell(["xyz"], 8).astype(int))[None]
    torch.testing.assert_close(part(torch.tensor([[1]]), characters)[0, 0], 3 * part.table.weight[1])
    other = LetterTrigrams(width=3, size=2, per_word=8, vocab_size=5)  # as where a checkpoint is opened without its words
    other.load_state_dict(part.state_dict())
    assert other.known.tolist() == [kept]


def test_a_transformer_reads_characters_in_place_of_a_table() -> None:
    network = network_of("transformer", layers=1, width=16, heads=2, dropout=0.0, embedding=small().float(),
        vocab_size=len(WORDS), clock=Clock())
    assert network.token_tables == {} and "characters" in network.takes
    assert isinstance(network.embeddings.characters, CharacterTable)
    assert not any(name.startswith("embeddings.tokens") for name in network.state_dict())
    tokens, characters = torch.tensor([[4, 1]]), torch.zeros(1, 2, 12, dtype=torch.long)
    characters[0, 1] = torch.from_numpy(spell(["dog"], 12)[0].astype(int))
    want = frozenset({"hidden"})
    known = network(want=want, tokens=torch.tensor([[4, 6]]))["hidden"]
    torch.testing.assert_close(network(want=want, tokens=tokens, characters=characters)["hidden"], known)
    assert not torch.allclose(network(want=want, tokens=tokens)["hidden"], known)
