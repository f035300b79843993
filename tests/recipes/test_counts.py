"""Published parameter counts, exact, of every recipe that has one: its parts are built on torch's meta device.

The numbers were worked out from the shapes that the authors state. They count what the authors' class holds, which is not always
what a recipe trains; the functions below say what is added or left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.checks.checked import Checked
from cloze.recipe.load import load_recipe, read_builtin


def checked(name: str, size: str | None = None, *changes: str) -> Checked:
    return check_recipe(load_recipe(name, size=size, overrides=list(changes)))


def network(found: Checked) -> int:
    """The exported network alone."""
    return found.networks[found.recipe.export]


def with_pooler(found: Checked) -> int:
    """The encoder and its pooler, as the authors count: the pooler is ours in the head that judges pairs, without its output."""
    width = network_width(found)
    return network(found) + width * width + width


def with_heads(found: Checked) -> int:
    """Everything that the recipe trains."""
    return sum(found.networks.values()) + sum(found.heads.values())


def exported(found: Checked) -> int:
    """The network of the checkpoint, without heads."""
    return found.networks[found.recipe.export]


def discriminator(found: Checked) -> int:
    """The checkpoint that ELECTRA released: the discriminator with its head, without the generator."""
    return found.networks["discriminator"] + found.heads["token_labelling"]


def fairseq(found: Checked) -> int:
    """RoBERTa's table of positions has two rows below the first, and its table of segments one row that all tokens share."""
    return network(found) + found.heads["token_prediction"] + 3 * network_width(found)


def fairseq_with_pooler(found: Checked) -> int:
    return with_pooler(found) + 3 * network_width(found)


def spare_rows(found: Checked) -> int:
    """BART's two tables of positions have two rows each below the first."""
    return with_heads(found) + 4 * network_width(found)


def padded_rows(found: Checked) -> int:
    """Mamba's table has as many rows as the next multiple of eight; those beyond the vocabulary are never read."""
    return with_heads(found) + -50_277 % 8 * network_width(found)


def network_width(found: Checked) -> int:
    part = found.recipe.exported.part
    assert part is not None
    return int(part.arguments["width"])


Counted = Callable[[Checked], int]


@pytest.mark.parametrize(
    ("name", "size", "counted", "published"),
    [
        ("bert", None, with_pooler, 109_482_240),
        ("bert", None, with_heads, 110_106_428),
        ("bert", "large", with_pooler, 335_141_888),
        ("bert", "large", with_heads, 336_226_108),
        ("bert", "tiny", with_pooler, 4_385_920),
        ("bert", "mini", with_pooler, 11_170_560),
        ("bert", "small", with_pooler, 28_763_648),
        ("bert", "medium", with_pooler, 41_373_184),
        ("bert-wwm", None, with_heads, 336_226_108),  # BERT-large, uncased
        ("bert-wwm-zh", None, with_pooler, 102_267_648),
        ("bert-wwm-ext", None, with_pooler, 102_267_648),
        ("roberta-wwm-ext", None, network, 102_267_648 - 769 * 768),  # no pooler is trained
        ("roberta-wwm-ext-large", None, network, 335_141_888 - 9394 * 1024 - 1025 * 1024),
        ("biobert", None, with_pooler, 108_310_272),  # BERT-base, cased
        ("clinicalbert", None, with_pooler, 108_310_272),
        ("mbert", None, with_pooler, 177_853_440),
        ("bertje", None, with_pooler, 109_482_240 - 522 * 768),  # BERT-base of 30,000 entries
        ("ernie", None, with_pooler, 102_267_648 - 3128 * 768 + 768),  # Chinese BERT of 18,000 entries and 513 positions
        ("ernie-dialogue", None, with_pooler, 102_267_648 - 3128 * 768 + 768),
        ("ernie-2.0-large", None, network, 335_141_888 - 1024 * 1025 + 7 * 1024),  # BERT-large, 4 segments, 5 tasks, no pooler
        ("ernie-2.0-zh", None, network, 102_267_648 - 768 * 769 - (3128 - 1 - 2 - 5) * 768),  # 18,000 entries, 513 positions
        ("ernie-2.0-large-zh", None, network, 335_141_888 - 1024 * 1025 - (17_722 - 2 - 5) * 1024),  # 12,800 entries
        ("nezha", None, with_pooler, 102_267_648 - 512 * 768),  # Chinese BERT without a table of positions
        ("nezha-large", None, with_pooler, 335_141_888 - 9394 * 1024 - 512 * 1024),  # BERT-large of 21,128 entries
        ("spanbert", None, with_pooler, 335_141_888 - 1526 * 1024),  # BERT-large, cased: 28,996 entries
        ("spanbert-base", None, with_pooler, 108_310_272),
        ("unilm", None, with_pooler, 108_310_272 + 4 * 768),  # BERT, cased, with six segments
        ("unilm-large", None, with_pooler, 335_141_888 - 1526 * 1024 + 4 * 1024),
        ("structbert", None, with_pooler, 109_482_240),  # BERT-base; its head has a third class
        ("structbert", "large", with_pooler, 335_141_888),  # README.md of alibaba/AliceMind: 340M
        ("roberta", None, fairseq, 124_697_433),
        ("roberta", None, fairseq_with_pooler, 124_645_632),
        ("roberta", "large", fairseq, 355_412_057),
        ("roberta", "large", fairseq_with_pooler, 355_359_744),
        ("roberta-large", None, fairseq, 355_412_057),
        ("roberta-large", None, fairseq_with_pooler, 355_359_744),
        ("roberta-doc-sentences", None, fairseq, 124_697_433),
        ("roberta-segment-pair", None, fairseq, 124_697_433),
        ("roberta-sentence-pair", None, fairseq, 124_697_433),
        ("roberta-layerdrop", None, fairseq, 124_697_433),
        ("gpt", None, network, 116_534_784),
        ("gpt2", None, with_heads, 124_439_808),
        ("gpt2-medium", None, with_heads, 354_823_168),
        ("gpt2-large", None, with_heads, 774_030_080),
        ("gpt2-xl", None, with_heads, 1_557_611_200),
        ("gpt3", None, with_heads, 125_226_240),  # table 2.1: 125M
        ("albert-base", None, with_pooler, 11_683_584),
        ("albert-large", None, with_pooler, 17_683_968),
        ("albert-xlarge", None, with_pooler, 58_724_864),
        ("albert-xxlarge", None, with_pooler, 222_595_584),
        ("albert-base-v2", None, with_pooler, 11_683_584),  # version 2 changes the training only
        ("albert-large-v2", None, with_pooler, 17_683_968),
        ("albert-xlarge-v2", None, with_pooler, 58_724_864),
        ("albert-xxlarge-v2", None, with_pooler, 222_595_584),
        ("electra-small", None, discriminator, 13_549_057),
        ("electra-base", None, discriminator, 109_483_009),
        ("electra-base", "large", discriminator, 335_142_913),
        ("electra-large", None, discriminator, 335_142_913),
        ("electra-small++", None, discriminator, 13_549_057),  # the generator is larger
        ("deberta-base", None, network, 184_224_768),  # 183,831,552 as a DebertaV2Model, and the positions of the mask decoder
        ("deberta-v3-xsmall", None, exported, 70_682_112),  # as DebertaV2Model, here and below
        ("deberta-v3-small", None, exported, 141_304_320),
        ("deberta-v3-base", None, exported, 183_831_552),
        ("deberta-v3-large", None, exported, 434_012_160),
        ("t5-small", None, with_heads, 60_506_624),
        ("t5-base", None, with_heads, 222_903_552),
        ("t5-large", None, with_heads, 737_668_096),
        ("t5-v1.1-small", None, with_heads, 76_961_152),
        ("t5-v1.1-base", None, with_heads, 247_577_856),
        ("t5-v1.1-large", None, with_heads, 783_150_080),
        ("bart-base", None, spare_rows, 139_420_416),
        ("bart-large", None, spare_rows, 406_291_456),
        ("mass", None, with_heads, 123_468_288),  # README: 123M
        ("mass-middle", None, with_heads, 208_664_576),  # README: 208M
        ("nnlm", None, with_heads, 11_904_264),  # the paper's formula at |V| = 17,964, n = 6, h = 60, m = 100
        ("awd-lstm", None, with_heads, 24_221_600),
        ("mamba", None, padded_rows, 129_135_360),  # mamba-130m
        ("smollm2-135m", None, with_heads, 134_515_008),
        ("elmo", None, network, 93_600_864),
        ("xlnet-base", None, network, 116_718_336),
        ("xlnet-base", None, with_heads, 116_718_336 + 32_000),
        ("xlnet-large", None, network, 360_268_800),
        ("xlnet-large", None, with_heads, 360_268_800 + 32_000),
    ],
)
def test_a_recipe_has_the_published_number_of_parameters(name: str, size: str | None, counted: Counted, published: int) -> None:
    assert counted(checked(name, size)) == published


@pytest.mark.parametrize(
    ("name", "counted", "millions"),
    [
        ("xlm-15-clm", with_heads, "249.1"),
        ("xlm-15-mlm", with_heads, "249.1"),
        ("xlm-15-tlm", with_heads, "249.1"),
        ("xlm-en", with_heads, "667.1"),  # the README says 665
        ("xlm-17", with_heads, "571.7"),
        ("xlm-100", with_heads, "571.7"),
        ("flaubert", with_heads, "138"),  # README of getalp/Flaubert
        ("camembert", network, "110"),  # fairseq, examples/camembert
        ("robbert", fairseq, "117"),  # model card
        ("modern", network, "149"),
    ],
)
def test_a_recipe_has_the_published_millions_of_parameters(name: str, counted: Counted, millions: str) -> None:
    digits = len(millions.partition(".")[2])
    assert f"{counted(checked(name)) / 1e6:.{digits}f}" == millions


def test_character_bert_is_bert_on_elmos_convolutions() -> None:
    """263 characters of width 16, filters of 1 to 7 characters, two highways of 2,048, a projection; BERT-base without words."""
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}
    convolutions = sum(width * 16 * number + number for width, number in filters.items())
    characters = 263 * 16 + convolutions + 2 * (2048 + 1) * 4096 + (2048 + 1) * 768
    assert network(checked("character-bert")) == 109_482_240 - (768 + 1) * 768 - 30_522 * 768 + characters


def test_zen_is_chinese_bert_and_six_layers_over_the_ngrams() -> None:
    """A thousand n-grams stand in for the lexicon; two kinds of segment and a norm belong to its table."""
    layer = 4 * (768 + 1) * 768 + (768 + 1) * 3072 + (3072 + 1) * 768 + 4 * 768
    assert with_pooler(checked("zen")) == 102_267_648 + 6 * layer + (1000 + 2 + 2) * 768


def test_ernie_is_bert_base_and_seven_layers_of_entities() -> None:
    """6 layers with attention among entities, one without, and the head that predicts entities."""
    found = checked("ernie-thu")
    assert with_pooler(found) == 109_482_240 + 617_772 + 6 * 658_372 and found.heads["entity_prediction"] == 77_100


def test_knowbert_is_bert_base_and_its_linkers() -> None:
    assert with_pooler(checked("knowbert")) == 109_482_240 + 2_422_153
    assert with_pooler(checked("knowbert-w-w")) == 109_482_240 + 2_422_153 + 1_456_353


def test_unicoder_is_the_larger_xlm_and_three_vectors() -> None:
    found = checked("unicoder")
    assert round((network(found) + found.heads["token_prediction"]) / 1e6, 1) == 249.1
    # Word recovery reads the tied table (95,000 x 1,024) through one vector of its own for each third of W.
    assert found.networks["recover"] == 95_000 * 1024 + 3 * 1024


def test_transformer_xl_with_the_words_of_the_data_set_has_the_published_millions() -> None:
    """Ours has pieces and a full softmax. The authors' has 267,735 words, and three cluster vectors with a bias each, of 410."""
    found = checked("transformer-xl", None, "text.tokenizer.size=267735")
    assert round((with_heads(found) + 3 * 411) / 1e6, 1) == 151.1


def test_gpt_bert_has_the_layers_of_its_authors() -> None:
    """model_extra.py with configs/base.json: no weights in norms but those of the distances' vectors, 24 means over the depth."""
    attention = 2 * (768 * 1536 + 1536) + 768 * 768 + 768
    layer = attention + 768 * 2 * 2560 + 2560 * 768
    means = sum(range(2, 26))
    head = 768 * 768 + 768 + 16_384
    own = 16_384 * 768 + 63 * 768 + 2 * 768 + 12 * layer + means + head
    assert with_heads(checked("gpt-bert")) == own == 119_454_532


def test_transformer_xl_large_with_words_and_a_table_of_four_widths_is_that_of_the_authors_script(tmp_path: Path) -> None:
    """run_wt103_large.sh: clusters of words whose vectors are 4 times narrower each, tied to the softmax but for one map."""
    text = read_builtin("transformer-xl-large").replace("objectives:\n  - token_prediction: {tie: true}", (
        "objectives:\n  - adaptive_prediction: {tie: true, cutoffs: [20000, 40000, 200000], divide: 4}"
    )).replace("norm_epsilon: 1e-5", "norm_epsilon: 1e-5\n    embedding: {cutoffs: [20000, 40000, 200000], divide: 4}")
    (tmp_path / "words.yaml").write_text(text)
    clusters = {20_000: 1024, 20_001: 256, 160_000: 64, 67_735: 16}
    assert sum(clusters) == 267_736 and len(clusters) == 4
    table = 20_000 * 1024 + 20_000 * 256 + 160_000 * 64 + 67_735 * 16
    maps = 1024 * (1024 + 256 + 64 + 16)
    layer = 3 * 1024**2 + 2 * 1024**2 + 2 * 1024 + 2 * 1024 * 4096 + 4096 + 1024 + 2 * 1024
    softmax = 267_735 + 3 * 1025 + 1024**2
    found = checked(str(tmp_path / "words.yaml"), None, "text.tokenizer.size=267735")
    assert with_heads(found) == table + maps + 18 * layer + 2 * 1024 + softmax


#: What table 2.1 of the paper says of each size of GPT-3: millions of parameters, layers, width, heads, their width, the peak
#: times 10,000, and millions of tokens in a batch.
GPT3 = {
    "gpt3": (125, 12, 768, 12, 64, 6.0, 0.5), "gpt3-medium": (350, 24, 1024, 16, 64, 3.0, 0.5),
    "gpt3-large": (760, 24, 1536, 16, 96, 2.5, 0.5), "gpt3-xl": (1300, 24, 2048, 24, 128, 2.0, 1),
    "gpt3-2.7b": (2700, 32, 2560, 32, 80, 1.6, 1), "gpt3-6.7b": (6700, 32, 4096, 32, 128, 1.2, 2),
    "gpt3-13b": (13_000, 40, 5140, 40, 128, 1.0, 2), "gpt3-175b": (175_000, 96, 12288, 96, 128, 0.6, 3.2),
}


@pytest.mark.parametrize("name", GPT3)
def test_a_size_of_gpt3_is_that_of_the_papers_table_where_the_table_agrees_with_itself(name: str) -> None:
    millions, layers, width, heads, across, peak, tokens = GPT3[name]
    heads = 16 if name == "gpt3-xl" else heads  # 24 heads of 128 are not 2,048 wide, and give 1,517 million
    width = 5120 if name == "gpt3-13b" else width  # 40 heads of 128
    assert width == heads * across
    found = checked(name)
    part, training = found.recipe.exported.part, found.recipe.training
    assert part is not None
    assert (part.arguments["layers"], part.arguments["width"], part.arguments["heads"]) == (layers, width, heads)
    own = layers * (12 * width**2 + 13 * width) + (50_257 + 2048) * width + 2 * width
    assert with_heads(found) == own == pytest.approx(1e6 * millions, rel=0.02)
    rate = training.rate.arguments
    assert rate["peak"] == pytest.approx(peak * 1e-4) and rate["floor"] == pytest.approx(0.1 * rate["peak"])
    row = training.batch * 2048
    assert row == pytest.approx(1e6 * tokens, rel=0.05)
    growth = training.batch_warmup.arguments
    grown, start = growth["until"] * training.steps, growth["start"]
    before = [row * steps * (start + (1 - start) * steps / grown / 2) for steps in (grown, rate["warmup_steps"])]
    assert before[0] + row * (training.steps - grown) == pytest.approx(300e9, rel=1e-3)
    assert growth["end"] == 1.0 and before[1] == pytest.approx(375e6, rel=5e-3)


def test_the_bytes_of_enwik8_are_their_own_vocabulary() -> None:
    """256 bytes and four marks; 12 layers of width 512, and u and v of 8 heads."""
    layer = 5 * 512**2 + 2 * 512 + 2 * 512 * 2048 + 2048 + 512 + 2 * 512
    assert with_heads(checked("transformer-xl-enwik8")) == 260 * 512 + 12 * layer + 2 * 512 + 260
