"""CoVe's translator: torch's encoder and its size, attention written out, rows and padding, caches, what it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks import Clock, LSTMEncoderDecoder
from cloze.networks.network import TokenSequence

ALL = frozenset({"hidden", "summary", "layers", "decoder_hidden"})


def network(**changed: Any) -> LSTMEncoderDecoder:
    torch.manual_seed(0)
    arguments = {"width": 12, "embedding_width": 6, "bound": 0.4, "vocab_size": 30, "clock": Clock(), **changed}
    return LSTMEncoderDecoder(**arguments).eval()


def fields(rows: int = 3, length: int = 7, targets: int = 5) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {
        "tokens": torch.randint(0, 30, (rows, length), generator=generator),
        "decoder": TokenSequence(torch.randint(0, 30, (rows, targets), generator=generator)),
    }


def states(made: LSTMEncoderDecoder, **given: Any) -> dict[str, Tensor]:
    with torch.no_grad():
        return made(want=ALL & made.gives.keys(), **given)


def torchs(made: LSTMEncoderDecoder) -> nn.LSTM:
    """torch's bidirectional LSTM with the encoder's weights."""
    layers = len(made.encoder.forwards)
    theirs = nn.LSTM(6, 6, layers, bidirectional=True, batch_first=True)
    own = [
        weight for pair in zip(made.encoder.forwards, made.encoder.backwards, strict=True) for layer in pair
        for weight in (layer.input.weight, layer.recurrent.weight, layer.bias, layer.recurrent.bias)
    ]
    with torch.no_grad():
        for theirs_, weight in zip(theirs.parameters(), own, strict=True):
            theirs_.copy_(weight)
    return theirs


def test_the_encoder_has_the_published_size() -> None:
    with torch.device("meta"):
        made = LSTMEncoderDecoder(width=600, embedding_width=300, vocab_size=100, clock=Clock())
    assert sum(p.numel() for p in made.encoder.parameters()) == 3_609_600


def test_the_encoder_is_torchs() -> None:
    made, given = network(), fields()
    theirs, (h, _) = torchs(made)(made.embeddings(given["tokens"]))
    found = states(made, **given)
    torch.testing.assert_close(found["hidden"], theirs, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found["layers"][2], theirs, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found["layers"][0], made.embeddings(given["tokens"]).repeat(1, 1, 2))
    last = made.encoder(made.embeddings(given["tokens"]), None).last[1][0]
    torch.testing.assert_close(last, torch.cat([h[2], h[3]], 1), atol=1e-6, rtol=1e-5)


def test_padded_rows_are_what_torch_makes_of_each_alone() -> None:
    made, given, lengths = network(), fields(), torch.tensor([4, 7, 1])
    block = (torch.arange(7) < lengths[:, None]).long()
    found = states(made, **given, block=block)
    for row, length in enumerate(lengths.tolist()):
        alone = given["tokens"][row : row + 1, :length]
        theirs, _ = torchs(made)(made.embeddings(alone))
        torch.testing.assert_close(found["hidden"][row, :length], theirs[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(found["summary"][row], theirs[0].mean(0), atol=1e-6, rtol=1e-5)
        one = states(made, tokens=alone, decoder=TokenSequence(given["decoder"].tokens[row : row + 1]))
        torch.testing.assert_close(found["decoder_hidden"][row], one["decoder_hidden"][0], atol=1e-6, rtol=1e-5)


def test_rows_in_another_order_have_their_states_in_that_order() -> None:
    made, given, block = network(), fields(), (torch.arange(7) < torch.tensor([4, 7, 1])[:, None]).long()
    order = torch.tensor([2, 0, 1])
    before = states(made, **given, block=block)
    moved = TokenSequence(given["decoder"].tokens[order])
    after = states(made, tokens=given["tokens"][order], decoder=moved, block=block[order])
    for name in ("hidden", "summary", "decoder_hidden"):
        torch.testing.assert_close(after[name], before[name][order], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("biases", [False, True])
def test_the_decoder_is_the_papers_written_out(biases: bool) -> None:
    made, given = network(attention_biases=biases), fields()
    decoder = made.decoder
    assert decoder is not None
    cells = []
    for layer in decoder.layers:
        cell = nn.LSTMCell(layer.input.in_features, 12)
        with torch.no_grad():
            for theirs, own in zip(
                cell.parameters(), (layer.input.weight, layer.recurrent.weight, layer.bias, layer.recurrent.bias), strict=True
            ):
                theirs.copy_(own)
        cells.append(cell)
    encoded = made.encoder(made.embeddings(given["tokens"]), None)
    source, (first, second) = encoded.layers[-1], encoded.last
    fed, made_states, shares = torch.zeros(3, 12), [], []
    for t in range(5):
        word = decoder.tokens.weight[given["decoder"].tokens[:, t]]
        first = cells[0](torch.cat([word, fed], 1), first)
        second = cells[1](first[0], second)
        h = second[0]
        share = torch.stack([torch.softmax(H @ decoder.query(one), 0) for H, one in zip(source, h, strict=True)])
        seen = torch.stack([H.T @ a for H, a in zip(source, share, strict=True)])
        fed = torch.tanh(decoder.attended(torch.cat([seen, h], 1)))
        made_states.append(fed)
        shares.append(share)
    found = states(made, **given)["decoder_hidden"]
    torch.testing.assert_close(found, torch.stack(made_states, 1).detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(made.attention(**given), torch.stack(shares, 1), atol=1e-6, rtol=1e-5)


def test_a_cache_gives_what_one_call_gives() -> None:
    made, given = network(), fields()
    whole, cache = states(made, **given)["decoder_hidden"], made.cache()
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        with torch.no_grad():
            part = made(
                want=frozenset({"decoder_hidden"}), tokens=given["tokens"],
                decoder=TokenSequence(given["decoder"].tokens[:, start:stop]), cache=cache,
            )["decoder_hidden"]  # fmt: skip
        torch.testing.assert_close(part, whole[:, start:stop])
    assert cache.length == 5


def test_dropout_falls_between_layers_and_differs_from_step_to_step() -> None:
    made, given = network(dropout=0.5, width=64, embedding_width=32).train(), fields()
    one, two = (made(want=frozenset({"decoder_hidden"}), **given)["decoder_hidden"] for _ in range(2))
    assert torch.equal(one, two)  # by address
    zero = one == 0
    assert 0.4 < float(zero.float().mean()) < 0.6 and not torch.equal(zero[:, 0], zero[:, 1])


def test_the_encoder_alone_gives_the_words_and_their_states() -> None:
    whole, alone = network(), network(decoder=False, words=True)
    kept = {name: weight for name, weight in whole.state_dict().items() if not name.startswith("decoder.")}
    alone.load_state_dict(kept)
    given = fields()["tokens"]
    found = states(alone, tokens=given)
    assert alone.width == 18 and alone.gives.keys() == {"hidden", "summary", "layers"}
    assert torch.equal(found["layers"], found["hidden"][None])
    torch.testing.assert_close(found["hidden"], torch.cat([whole.embeddings(given), states(whole, **fields())["hidden"]], 2))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match="decoder: false"):
        network(words=True)
    with pytest.raises(RecipeError, match="even width"):
        network(width=7)
    with pytest.raises(RecipeError, match="answer"):
        network()(want=frozenset({"decoder_hidden"}), tokens=fields()["tokens"])
    with pytest.raises(RecipeError, match="no decoder"):
        network(decoder=False)(want=frozenset({"decoder_hidden"}), **fields())


def test_copying_is_learnt_with_attention_that_goes_along() -> None:
    torch.manual_seed(1)
    made = LSTMEncoderDecoder(width=64, embedding_width=32, layers=1, dropout=0.0, vocab_size=12, clock=Clock())
    out = nn.Linear(64, 12)
    parameters = [*made.parameters(), *out.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for step in range(160):
        text = torch.stack([torch.randperm(11)[:5] + 1 for _ in range(32)])
        shown = torch.cat([torch.zeros(32, 1, dtype=torch.long), text[:, :-1]], 1)
        hidden = made(want=frozenset({"decoder_hidden"}), tokens=text, decoder=TokenSequence(shown))["decoder_hidden"]
        loss = F.cross_entropy(out(hidden).flatten(0, 1), text.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 1e-2 if step < 112 else 1e-3
    assert float(loss.detach().exp()) < 1.1
    with torch.no_grad():
        looked = made.attention(tokens=text, decoder=TokenSequence(shown))
    nearest = (looked.argmax(2) - torch.arange(5)).abs()
    assert float((nearest <= 1).float().mean()) > 0.8


def test_in_bfloat16_states_are_near_and_everything_gets_a_gradient() -> None:
    made, given = network().train(), fields()
    exact = states(made, **given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = made(want=ALL, **given)
    for name, state in short.items():
        torch.testing.assert_close(state.float(), exact[name], atol=0.03, rtol=0.05)
    torch.stack([state.float().sum() for state in short.values()]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())
