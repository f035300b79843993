"""K-Adapter: what the network gives stays as it is, what modules read, a second adapter, padding, and what is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.changes import KnowledgeAdapter, TuneTrunk
from cloze.errors import CheckpointError
from cloze.networks import Clock
from cloze.networks.blocks.dropout import Dropout
from tests.making import network_of

LENGTH = 6
ALL = frozenset({"hidden", "summary", "layers", "facts_hidden"})
FACTS = KnowledgeAdapter(name="facts", width=4, heads=2, at=(0, 1, 3), dropout=0.0, std=0.3)
WORDS = KnowledgeAdapter(name="words", width=6, heads=3, at=(2,), layers=1, dropout=0.0, std=0.3)


def trunk() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 4, "width": 8, "heads": 2, "dropout": 0.2, "initial.std": 0.3}
    made = network_of("transformer", **sizes, vocab_size=11, clock=Clock(0))
    return made.double().eval()


def adapted(*changes: KnowledgeAdapter) -> Any:
    network = trunk()
    for number, change in enumerate(changes):
        torch.manual_seed(7 + number)
        change.apply(network)
    return network.double().eval()


def ids(length: int = LENGTH) -> Tensor:
    return torch.randint(0, 11, (2, length), generator=torch.Generator().manual_seed(1))


def test_the_states_of_the_network_are_the_same_bit_for_bit_with_and_without_adapters() -> None:
    want, tokens = frozenset({"layers"}), ids()
    layers = trunk()(want=want, tokens=tokens)["layers"]
    for network in (adapted(FACTS), adapted(FACTS, WORDS)):
        assert torch.equal(network(want=want, tokens=tokens)["layers"], layers)
        assert torch.equal(network(want=ALL, tokens=tokens)["layers"], layers)


def test_a_module_with_a_map_back_of_zero_gives_what_it_reads() -> None:
    network = adapted(FACTS)
    for module in network.outside[0].blocks:
        torch.nn.init.zeros_(module.up.weight)
    torch.nn.init.zeros_(network.outside[0].join.weight)
    network.outside[0].join.weight.data[:, 8:] = torch.eye(8)
    torch.nn.init.zeros_(network.outside[0].join.bias)
    states = network(want=ALL, tokens=ids())
    layers = states["layers"]
    torch.testing.assert_close(states["hidden"], layers[0] + layers[1] + layers[3], rtol=0, atol=1e-12)
    torch.testing.assert_close(states["summary"], states["hidden"][:, 0])


def test_the_first_module_reads_a_layer_and_the_next_ones_add_what_the_last_one_gave() -> None:
    network, given = adapted(FACTS), []
    for module in network.outside[0].blocks:
        module.register_forward_hook(lambda module, args, output: given.append((args[0], output)))
    layers = network(want=ALL, tokens=ids())["layers"]
    assert torch.equal(given[0][0], layers[0])
    assert torch.equal(given[1][0], layers[1] + given[0][1]) and torch.equal(given[2][0], layers[3] + given[1][1])


def test_a_second_adapter_leaves_the_outputs_of_the_first_as_they_are() -> None:
    one, two = adapted(FACTS), adapted(FACTS, WORDS)
    first, second = one(want=ALL, tokens=ids()), two(want=ALL | {"words_hidden"}, tokens=ids())
    assert torch.equal(first["hidden"], first["facts_hidden"])
    assert torch.equal(second["facts_hidden"], first["facts_hidden"])
    together = two.outside[1].both(torch.cat([second["facts_hidden"], second["words_hidden"]], -1))
    assert torch.equal(second["hidden"], together)


def test_adapters_do_not_attend_to_padding_nor_to_other_packed_texts() -> None:
    network, tokens = adapted(FACTS), ids()
    alone = network(want=ALL, tokens=tokens)["hidden"]
    padded = torch.cat([tokens, torch.full((2, 3), 5)], 1)
    block = torch.cat([torch.ones(2, LENGTH), torch.zeros(2, 3)], 1).long()
    torch.testing.assert_close(network(want=ALL, tokens=padded, block=block)["hidden"][:, :LENGTH], alone, rtol=0, atol=1e-12)
    packed = network(
        want=ALL, tokens=torch.cat([tokens, tokens], 1), block=torch.tensor([[1] * LENGTH + [2] * LENGTH] * 2),
        position_ids=torch.arange(LENGTH).repeat(2, 2), summaries=torch.tensor([0, LENGTH, 2 * LENGTH, 3 * LENGTH]),
    )
    torch.testing.assert_close(packed["hidden"], torch.cat([alone, alone], 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(packed["summary"], alone[:, 0].repeat_interleave(2, 0), rtol=0, atol=1e-12)


def test_adapters_see_what_the_order_of_reading_shows() -> None:
    network, tokens = adapted(FACTS), ids()
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 11
    first, second = (network(want=ALL, tokens=one, order="left_to_right")["hidden"] for one in (tokens, other))
    assert torch.equal(first[:, :-1], second[:, :-1]) and not torch.equal(first[:, -1], second[:, -1])


def trained(network: Any) -> set[str]:
    return {".".join(name.split(".")[:3]) for name, parameter in network.named_parameters() if parameter.requires_grad}


def test_the_newest_adapter_alone_is_trained_and_the_network_has_no_dropout() -> None:
    network = adapted(FACTS, WORDS)
    assert trained(network) == {"outside.1.blocks", "outside.1.join", "outside.1.both"}
    assert all(module.rate == 0.0 for module in network.modules() if isinstance(module, Dropout))


def test_on_a_task_the_network_may_be_trained_and_the_adapters_frozen() -> None:
    network = adapted(FACTS, WORDS)
    TuneTrunk().apply(network)
    parts = trained(network)
    assert {"outside.0.join", "outside.1.join", "outside.1.both", "layers.0.attention"} < parts
    assert not {"outside.0.blocks", "outside.1.blocks"} & parts
    assert {module.rate for module in network.layers.modules() if isinstance(module, Dropout)} == {0.0, 0.2}
    with pytest.raises(CheckpointError, match="Transformer has no knowledge adapters"):
        TuneTrunk().apply(trunk())


def test_on_a_task_frozen_adapters_have_their_dropout_as_the_authors_modules_in_training_mode() -> None:
    # microsoft/K-Adapter, examples/run_finetune_openentity_adapter.py:184 and 546: et_model.train(), requires_grad = False
    network = adapted(replace(FACTS, dropout=0.1), replace(WORDS, dropout=0.3))
    TuneTrunk().apply(network)
    rates = [{module.rate for module in outside.modules() if isinstance(module, Dropout)} for outside in network.outside]
    assert rates == [{0.0, 0.1}, {0.0, 0.3}]  # 0.0: behind the activation of a feed-forward map, as in the code
    assert {module.rate for module in network.layers.modules() if isinstance(module, Dropout)} == {0.0, 0.2}
    assert not any(parameter.requires_grad for outside in network.outside for parameter in outside.blocks.parameters())


def test_by_default_modules_read_the_embeddings_the_middle_and_the_last_layer_but_one() -> None:
    network = trunk()
    KnowledgeAdapter(width=4, heads=2).apply(network)
    assert network.outside[0].at == (0, 1, 2) and network.outside[0].name == "knowledge"
    with torch.device("meta"):
        large = network_of("transformer", layers=24, width=16, heads=2, vocab_size=9, clock=Clock(0))
        KnowledgeAdapter().apply(large)
    assert large.outside[0].at == (0, 11, 22)


def test_the_published_adapter_has_three_modules_of_two_bert_layers() -> None:
    """Per module: a map from 1,024 to 768, two layers of BERT-base, and a map back."""
    with torch.device("meta"):
        large = network_of("transformer", layers=24, width=1024, heads=16, vocab_size=9, clock=Clock(0))
        KnowledgeAdapter().apply(large)
    counts = [sum(p.numel() for p in module.parameters()) for module in large.outside[0].blocks]
    assert counts == [1024 * 768 + 768 + 2 * 7_087_872 + 768 * 1024 + 1024] * 3


@pytest.mark.parametrize(("change", "told"), [
    (KnowledgeAdapter(at=(0, 9)), r"at: \[0, 9\]. Expected layers from 0, the embeddings, to 4, the top"),
    (KnowledgeAdapter(width=6, heads=4), "4 heads do not divide the width 6"),
    (KnowledgeAdapter(name="my facts"), "name: 'my facts'. Expected a word of letters"),
    (FACTS, "there is an adapter 'facts' already"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(change: KnowledgeAdapter, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        change.apply(adapted(FACTS))
