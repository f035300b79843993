"""Networks that read items with a text: published counts, what a hidden item may change, the order of items, texts alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.fast.switch import switched
from tests.making import network_of

ROWS, LENGTH, ITEMS, FEATURES, WIDTH = 2, 6, 4, 12, 8
TEXT, STATES = frozenset({"hidden", "summary", "layers"}), frozenset({"hidden", "item_hidden"})
SMALL: dict[str, Any] = {"layers": 2, "width": WIDTH, "heads": 2, "max_length": 16, "dropout": 0.0, "initial.std": 0.3}
OWN = {"item_stack.layers": 2, "item_stack.width": 12, "item_stack.heads": 3, "item_stack.inner": 10}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "with_tables": ("visual", {"items": "with_tables"}),
    "appended": ("visual", {"items": "appended"}),
    "normed": ("visual", {
        "items": "appended", "items.boxes": 7, "items.norm": "both", "items.hidden": True, "items.segment": True,
    }),
    "elements": ("visual", {"items": "elements", "items.waves": 2, "items.gain": 1.0, "segments": 3}),
    "added": ("visual", {"items": "added", "items.places": 5}),
    "co_attention": ("co_attention", {**OWN, "crossing.width": 6, "crossing.heads": 2}),
    "cross_modal": ("cross_modal", {"item_layers": 1, "cross_layers": 2}),
}
SEPARATE = ("with_tables", "appended", "normed", "elements", "co_attention", "cross_modal")


def build(kind: str, **changed: Any) -> Any:
    torch.manual_seed(3)
    part, arguments = KINDS[kind]
    arguments = {**SMALL, **arguments, "items.width": FEATURES, **changed}
    return network_of(part, **arguments, vocab_size=11, clock=Clock(1)).double().eval()


def ids(rows: int = ROWS) -> Tensor:
    return torch.randint(0, 11, (rows, LENGTH), generator=torch.Generator().manual_seed(0))


def picture(features: Tensor | None = None, lengths: tuple[int, ...] = (ITEMS, 3), **items: Tensor) -> dict[str, Any]:
    """The fields of items, as a pass gives them to a network; every item but the last is linked with a token."""
    draw = torch.Generator().manual_seed(1)
    vectors = torch.randn(ROWS, ITEMS, FEATURES, generator=draw, dtype=torch.double) if features is None else features
    draw.manual_seed(2)
    corners = torch.rand(ROWS, ITEMS, 2, 2, generator=draw, dtype=torch.double).sort(2).values.flatten(2)
    links = [(row * LENGTH + 1 + item, row * ITEMS + item) for row in range(ROWS) for item in range(2)]
    return {
        "item_vectors": {"regions": vectors, "regions/boxes": corners}, "item_length": {"regions": torch.tensor(lengths)},
        "links": {"regions": torch.tensor(links)}, "items": {f"regions/{name}": value for name, value in items.items()},
    }


def run(network: Any, want: frozenset[str] = STATES, block: Tensor | None = None, **given: Any) -> dict[str, Tensor]:
    if "links/regions" not in network.takes:
        given.pop("links", None)
    made: dict[str, Tensor] = network(want=want, tokens=ids(), block=block, **given)
    return made


@pytest.mark.parametrize(
    ("part", "count", "arguments"),
    [  # VisualBertModel; UNITER's base and large model, ChenRocks/UNITER model/model.py; LxmertModel
        ("visual", 111_450_624, {"layers": 12, "width": 768, "heads": 12, "items": "with_tables", "vocab_size": 30522}),
        ("visual", 109_898_752, {"layers": 12, "width": 768, "heads": 12, **KINDS["normed"][1], "vocab_size": 28996}),
        ("visual", 335_695_872, {"layers": 24, "width": 1024, "heads": 16, **KINDS["normed"][1], "vocab_size": 28996}),
        ("cross_modal", 207_936_768, {"layers": 9, "width": 768, "heads": 12, "vocab_size": 30522}),
    ],
)
def test_published_sizes_have_their_numbers_of_parameters(part: str, count: int, arguments: dict[str, Any]) -> None:
    with torch.device("meta"):
        made = network_of(part, **arguments, clock=Clock(0))
    width = arguments["width"]
    pooler = width * width + width if part == "visual" else 0  # of the head here, of the network there
    assert sum(parameter.numel() for parameter in made.parameters()) + pooler == count


@pytest.mark.parametrize("kind", KINDS)
def test_padded_items_and_padded_tokens_change_nothing(kind: str) -> None:
    network, block = build(kind), torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 2])
    given = picture()
    other = given["item_vectors"]["regions"].clone()
    other[1, 3] = 9.0
    first, second = run(network, block=block, **given), run(network, block=block, **picture(other))
    assert torch.equal(first["hidden"][0], second["hidden"][0])
    for name, real in (("hidden", 4), ("item_hidden", 3)):
        torch.testing.assert_close(first[name][1, :real], second[name][1, :real], rtol=0, atol=1e-12)
    alone = {
        key: {name: value[1:, :3] if value.dim() > 1 else value[1:] for name, value in fields.items()}
        for key, fields in given.items() if key not in ("links", "items")
    }
    if "links/regions" in network.takes:
        alone["links"] = {"regions": torch.tensor([[1, 0], [2, 1]])}
    short = network(want=STATES, tokens=ids()[1:, :4], **alone)
    for name, real in (("hidden", 4), ("item_hidden", 3)):
        torch.testing.assert_close(short[name][0], first[name][1, :real], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_items_does_not_change_what_tokens_are(kind: str) -> None:
    network, given, turned = build(kind), picture(lengths=(ITEMS, ITEMS)), torch.tensor([2, 0, 3, 1])
    back = torch.argsort(turned)
    moved = {**given, "item_vectors": {name: value[:, turned] for name, value in given["item_vectors"].items()}}
    links = given["links"]["regions"]
    moved["links"] = {"regions": torch.stack([links[:, 0], links[:, 1] // ITEMS * ITEMS + back[links[:, 1] % ITEMS]], 1)}
    first, second = run(network, **given), run(network, **moved)
    torch.testing.assert_close(first["hidden"], second["hidden"], rtol=0, atol=1e-10)
    torch.testing.assert_close(first["item_hidden"][:, turned], second["item_hidden"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", SEPARATE)
def test_an_item_sees_the_text_and_tokens_see_the_items(kind: str) -> None:
    network, given = build(kind), picture()
    first = run(network, **given)
    given["item_vectors"]["regions"][0, 2] += 1.0
    second = run(network, **given)
    assert not torch.allclose(first["hidden"][0], second["hidden"][0])
    assert not torch.allclose(first["item_hidden"][0, 0], second["item_hidden"][0, 0])
    assert torch.equal(first["hidden"][1], second["hidden"][1])


@pytest.mark.parametrize("kind", ["with_tables", "appended", "normed", "added"])
def test_a_text_without_a_picture_is_read_as_by_bert(kind: str) -> None:
    network, block = build(kind), torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 2])
    given = {name: value for name, value in SMALL.items() if name != "max_length"}
    plain = network_of("transformer", **given, segments=2, **{"positions.max_length": 16}, vocab_size=11, clock=Clock(1))
    plain.double().eval().load_state_dict(network.state_dict(), strict=False)
    theirs = plain(want=TEXT, tokens=ids(), block=block)
    without = run(network, TEXT, block)
    for name in TEXT:
        torch.testing.assert_close(without[name], theirs[name], rtol=0, atol=1e-12)
    assert tuple(run(network)["item_hidden"].shape) == (ROWS, 0, WIDTH)
    among = run(network, TEXT, block, **picture(lengths=(ITEMS, 0)))  # the second row has none, and the first one has
    for name in ("hidden", "summary"):
        torch.testing.assert_close(among[name][1][: 4 if name == "hidden" else None], theirs[name][1][: 4 if name == "hidden"
                                   else None], rtol=0, atol=1e-10)


def test_a_picture_of_zeros_adds_nothing_to_tokens() -> None:
    network = build("added")
    zeros = picture(torch.zeros(ROWS, ITEMS, FEATURES, dtype=torch.double))
    for table in (network.items.across, network.items.down):
        torch.nn.init.zeros_(table.weight)
    torch.testing.assert_close(run(network, **zeros)["hidden"], run(network)["hidden"], rtol=0, atol=1e-12)


def embedded(network: Any, **given: Any) -> Tensor:
    """What the first layer reads."""
    seen: list[Tensor] = []
    hook = network.layers[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    run(network, **given)
    hook.remove()
    return seen[0]


def test_a_linked_token_is_its_word_plus_its_region_and_another_token_its_word_plus_the_bias() -> None:
    """The formula of Alberti et al., §3.2, with the vectors of edges and the tanh of their code, written as a loop."""
    network, given = build("added"), picture()
    with torch.no_grad():
        network.items.map.bias.normal_(generator=torch.Generator().manual_seed(4))
    words, found = embedded(network), embedded(network, **given)
    features, corners = (given["item_vectors"][name] for name in ("regions", "regions/boxes"))
    weight, bias = (parameter.detach() for parameter in network.items.map.parameters())
    across, down = network.items.across.weight.detach(), network.items.down.weight.detach()

    def placed(row: int, item: int) -> Tensor:
        x1, y1, x2, y2 = (int(5 * number) for number in corners[row, item].tolist())
        return features[row, item] + torch.cat([across[x1], across[x2], down[y1], down[y2]])

    for row, count in enumerate((ITEMS, 3)):
        for token in range(LENGTH):
            read = torch.zeros(FEATURES, dtype=torch.double)
            if token == 0:
                read = read + torch.stack([placed(row, item) for item in range(count)]).mean(0)
            for at, item in given["links"]["regions"].tolist():
                if at == row * LENGTH + token:
                    read = read + placed(row, item - row * ITEMS)
            added = torch.tanh(weight @ read + bias)
            torch.testing.assert_close(found[row, token], words[row, token] + added, rtol=0, atol=1e-12)


def test_a_region_reaches_the_first_token_and_the_tokens_that_mention_it_alone() -> None:
    network, given = build("added"), picture()
    before = embedded(network, **given)
    given["item_vectors"]["regions"][0, 1] += 1.0
    changed = (embedded(network, **given) != before).any(-1)
    assert changed.nonzero().tolist() == [[0, 0], [0, 2]]
    given["item_vectors"]["regions"][0, 1] = 0.0  # as `mask_items` leaves a region that it hides
    given["items"] = {"regions/masked": torch.tensor([[0, 1, 0, 0], [0] * 4])}
    hidden = embedded(network, **given)
    assert (hidden != before).any(-1).nonzero().tolist() == [[0, 0], [0, 2]]
    other = {**given, "item_vectors": {**given["item_vectors"], "regions/boxes": given["item_vectors"]["regions/boxes"].clone()}}
    other["item_vectors"]["regions/boxes"][0, 1] = torch.tensor([0.0, 0.0, 0.1, 0.1])
    assert (embedded(network, **other) != hidden).any(-1).nonzero().tolist() == [[0, 2]], "its place is shown where it is linked"


def test_norms_of_visual_vectors_with_gain_0_make_the_first_step_one_of_text() -> None:
    network = build("elements", **{"items.gain": 0.0})
    other = picture(torch.randn(ROWS, ITEMS, FEATURES, dtype=torch.double, generator=torch.Generator().manual_seed(5)))
    torch.testing.assert_close(run(network, **picture())["hidden"], run(network, **other)["hidden"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["co_attention", "cross_modal"])
def test_two_streams_read_texts_alone(kind: str) -> None:
    network, block = build(kind), torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 2])
    alone, among = run(network, TEXT, block), run(network, TEXT, block, **picture(lengths=(ITEMS, 0)))
    torch.testing.assert_close(alone["hidden"][1, :4], among["hidden"][1, :4], rtol=0, atol=1e-10)
    assert len(alone["layers"]) == network.layer_state_count and torch.equal(alone["layers"][-1], alone["hidden"])
    assert tuple(run(network)["item_hidden"].shape[:2]) == (ROWS, 0)


def test_a_stream_whose_co_layers_pass_the_text_on_is_bert() -> None:
    """With all maps of a co-layer at zero, only its two norms are left, which leave normed states as they are."""
    network = build("co_attention")
    for layer in network.co_layers:
        for parameter in [*layer.text.attention.parameters(), *layer.text.inner.parameters(), *layer.text.outer.parameters()]:
            torch.nn.init.zeros_(parameter)
    for norm in (module for module in network.modules() if isinstance(module, torch.nn.LayerNorm)):
        norm.eps = 0.0
    given = {name: value for name, value in SMALL.items() if name != "max_length"}
    plain = network_of("transformer", **given, segments=2, **{"positions.max_length": 16}, vocab_size=11, clock=Clock(1))
    plain.double().eval().load_state_dict(network.state_dict(), strict=False)
    theirs = plain(want=TEXT, tokens=ids())["hidden"]
    torch.testing.assert_close(run(network, **picture())["hidden"], theirs, rtol=0, atol=1e-6)


def test_a_hidden_item_has_a_vector_of_its_own_and_a_kept_one_its_features() -> None:
    network, given = build("normed"), picture()
    given["item_vectors"]["regions"][0, 1] = 0.0
    chosen = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0]])
    plain, marked = run(network, **given), run(network, **{**given, "items": {"regions/masked": chosen}})
    assert not torch.allclose(plain["item_hidden"][0], marked["item_hidden"][0])
    assert torch.equal(plain["item_hidden"][1], marked["item_hidden"][1])
    kept = run(network, **{**given, "items": {"regions/masked": torch.tensor([[0, 0, 1, 0], [0] * 4])}})
    assert torch.equal(plain["item_hidden"], kept["item_hidden"])
    assert network.items.vectors.hidden.weight[0].eq(0).all()


@pytest.mark.parametrize("kind", ["elements", "co_attention"])
def test_the_whole_picture_is_the_mean_of_what_is_shown(kind: str) -> None:
    """A hidden item is zero in the batch, so the mean cannot give it away."""
    network, given = build(kind), picture()
    given["item_vectors"]["regions"][0, 1] = 0.0
    given["items"] = {"regions/masked": torch.tensor([[0, 1, 0, 0], [0] * 4])}
    seen = []
    module = network.items.map if kind == "elements" else network.items.features
    module.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    run(network, **given)
    shown = given["item_vectors"]["regions"][0, [0, 2, 3]].sum(0)
    whole = seen[0][0, 0, -FEATURES:]
    torch.testing.assert_close(whole, shown / (3 if kind == "elements" else 4), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", SEPARATE)
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_a_budget_counts_what_torch_counts(kind: str) -> None:
    network = build(kind).train()
    given = picture(lengths=(ITEMS, ITEMS))
    vectors = {f"item_vectors/{name}": value for name, value in given["item_vectors"].items()}
    want = frozenset({"hidden", "item_hidden", *(["pooled"] if "pooled" in network.gives else [])})
    routed = {"item_vectors": {name.partition("/")[2]: value for name, value in vectors.items()}}
    with torch.backends.mkldnn.flags(enabled=False), switched(False), FlopCounterMode(display=False) as counter:
        states = network(want=want, tokens=ids(), **routed)
        sum((state.square().sum() for state in states.values()), torch.zeros(())).backward()
    counted = network.flops({"tokens": ids(), **vectors}, want=want)
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_all_parameters_learn_and_the_layers_are_grouped_by_depth(kind: str) -> None:
    network = build(kind).train()
    given = picture(items={})
    given.pop("items")
    given["item_vectors"]["regions"][0, 1] = 0.0
    want = frozenset({"hidden", "item_hidden", *(["pooled"] if "pooled" in network.gives else [])})
    states = run(network, want, items={"regions/masked": torch.tensor([[0, 1, 0, 0], [0] * 4])}, **given)
    sum((state[:1].pow(3).sum() for state in states.values()), torch.zeros(())).backward()
    silent = {name for name, parameter in network.named_parameters() if parameter.grad is None}
    assert silent <= {"items.no_picture.weight"}
    grouped = [parameter for group in network.depth_groups() for parameter in group.parameters()]
    apart = sum(p.numel() for name in ("pooler", "text_pooler", "item_pooler") if hasattr(network, name)
                for p in getattr(network, name).parameters())
    assert sum(p.numel() for p in network.parameters()) == sum(p.numel() for p in grouped) + apart


@pytest.mark.parametrize("kind", ["co_attention", "cross_modal"])
def test_what_both_streams_attend_to_follows_from_their_queries_and_keys(kind: str) -> None:
    """Of a row with three real items and two words that are padding: shares are softmaxes of the products, zero at padding."""
    network, given = build(kind), picture()
    block = torch.tensor([[1] * LENGTH, [1] * 4 + [0] * 2])
    prefixes = ("item_", "crossing_", "item_crossing_")
    names = frozenset(prefix + name for prefix in prefixes for name in ("attention", "queries", "keys"))
    found = run(network, names | STATES, block, **given)
    plain = run(network, STATES, block, **given)
    for name in STATES:
        torch.testing.assert_close(found[name], plain[name])
    whole = kind == "co_attention"  # the whole picture stands in front
    items = torch.tensor([[True] * (ITEMS + whole), [True] * (ITEMS - 1 + whole) + [False]])
    sides = {"text": (LENGTH, block > 0), "items": (ITEMS + whole, items)}
    for prefix, (rows, columns) in zip(prefixes, [("items", "items"), ("text", "items"), ("items", "text")], strict=True):
        queries, keys = found[f"{prefix}queries"], found[f"{prefix}keys"]
        layers = 3 if kind == "cross_modal" and prefix == "item_" else 2
        assert len(queries) == layers and queries.shape[3] == sides[rows][0] and keys.shape[3] == sides[columns][0]
        scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
        shares = scores.masked_fill(~sides[columns][1][None, :, None, None], -torch.inf).softmax(-1)
        for row, real in enumerate(sides[rows][1]):
            torch.testing.assert_close(found[f"{prefix}attention"][:, row][:, :, real], shares[:, row][:, :, real])


def test_packed_texts_without_items_are_pooled_with_the_picture_of_their_row() -> None:
    network, want = build("co_attention"), frozenset({"pooled", "summary"})
    alone = run(network, want)
    packed = run(network, want, summaries=torch.tensor([0, 3, LENGTH]))
    assert packed["pooled"].shape == (3, 6)
    torch.testing.assert_close(packed["pooled"][[0, 2]], alone["pooled"])


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(RecipeError, match=r"the corpus has none\.\n.*boxes: 0"):
        run(build("appended"), **{**picture(), "item_vectors": {"regions": picture()["item_vectors"]["regions"]}})
    with pytest.raises(RecipeError, match=r"2 texts with items 'regions' are packed into 1 rows: write training.packing: false"):
        build("appended")(want=STATES, tokens=ids(1), **picture())
    with pytest.raises(RecipeError, match=r"order: open"):
        run(build("appended"), order="left_to_right", **picture())
    with pytest.raises(RecipeError, match=r"Write segments: 3"):
        build("elements", segments=2)
    with pytest.raises(RecipeError, match=r"item_stack.layers: got 3, expected 1 to 2"):
        build("co_attention", **{"item_stack.layers": 3})
    with pytest.raises(RecipeError, match=r"norms features and boxes apart, and boxes is 0"):
        build("appended", **{"items.boxes": 0, "items.norm": "both"})
