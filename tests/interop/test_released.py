"""`cloze import` reads weights as their authors release them: states equal a plain forward pass over the files' own arrays.

Every file is written here in the published layout (allenai/bilm-tf, salesforce/cove, ryankiros/skip-thoughts, fastai) with random
numbers. The expected states are computed word by word from the equations in NumPy, or by `torch.nn.LSTM`, and never by cloze.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed
from cloze.decoding.vectors.features import token_features
from cloze.errors import CheckpointError
from cloze.interop.released import import_released
from cloze.interop.released.pickles import read_words
from cloze.recipe.load import load_recipe

DRAW = np.random.default_rng(3)
TEXT = "the cat sat on a mat"


def array(*shape: int, scale: float = 0.5) -> Any:
    return (scale * DRAW.standard_normal(shape)).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def imported(capsys: pytest.CaptureFixture[str], source: Path, out: Path, *options: str) -> tuple[Any, str]:
    """The checkpoint that the command writes, and what it printed; its recipe passes every check."""
    code = main(["import", str(source), "--out", str(out), *options])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert main(["check", str(out / "cloze" / "recipe.yaml")]) == 0
    capsys.readouterr()
    return load_checkpoint(out), told.out


def refusal(capsys: pytest.CaptureFixture[str], source: Path, out: Path, *options: str) -> str:
    assert main(["import", str(source), "--out", str(out), *options]) == 2
    assert not out.exists()
    return capsys.readouterr().err


# --- ELMo ----------------------------------------------------------------------------------------------------------------

ELMO: dict[str, Any] = {
    "lstm": {"n_layers": 2, "dim": 9, "projection_dim": 6, "use_skip_connections": True, "cell_clip": 3, "proj_clip": 3},
    "char_cnn": {
        "embedding": {"dim": 4}, "filters": [[1, 3], [2, 4], [3, 5]], "n_highway": 2, "n_characters": 262,
        "max_characters_per_token": 50, "activation": "relu",
    },
}  # fmt: skip


def elmo_arrays() -> dict[str, Any]:
    made: dict[str, Any] = {"char_embed": array(261, 4, scale=1.0), "CNN_proj/W_proj": array(12, 6), "CNN_proj/b_proj": array(6)}
    for n, (span, count) in enumerate(ELMO["char_cnn"]["filters"]):
        made |= {f"CNN/W_cnn_{n}": array(1, span, 4, count), f"CNN/b_cnn_{n}": array(count)}
    for n in range(2):
        for name in ("carry", "transform"):
            made |= {f"CNN_high_{n}/W_{name}": array(12, 12), f"CNN_high_{n}/b_{name}": array(12)}
        for way in (0, 1):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            made |= {f"{cell}/W_0": array(12, 36, scale=0.6), f"{cell}/B": array(36), f"{cell}/W_P_0": array(9, 6, scale=1.0)}
    return made


def elmo_folder(place: Path, arrays: dict[str, Any], options: Any = None) -> Path:
    h5py = pytest.importorskip("h5py")
    place.mkdir()
    (place / "elmo_tiny_options.json").write_text(json.dumps(options or ELMO))
    with h5py.File(place / "elmo_tiny_weights.hdf5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return place


def elmo_states(arrays: dict[str, Any], words: list[str]) -> Any:
    """All three layers of the words between their marks (3, words, 12): Peters et al. (2018), §3.1 and §3.2."""
    read = []
    for word in ["<S>", *words, "</S>"]:
        ids = [258, *{"<S>": [256], "</S>": [257]}.get(word, list(word.encode())), 259]
        x = arrays["char_embed"][ids + [260] * (50 - len(ids))].astype(np.float64)
        found = []
        for n, (span, _) in enumerate(ELMO["char_cnn"]["filters"]):
            windows = np.stack([x[at : at + span].ravel() for at in range(51 - span)])
            kernel = arrays[f"CNN/W_cnn_{n}"][0].reshape(span * 4, -1)
            found.append(np.maximum((windows @ kernel).max(0) + arrays[f"CNN/b_cnn_{n}"], 0))
        y = np.concatenate(found)
        for n in range(2):
            gate, new = (y @ arrays[f"CNN_high_{n}/W_{k}"] + arrays[f"CNN_high_{n}/b_{k}"] for k in ("carry", "transform"))
            y = sigmoid(gate) * np.maximum(new, 0) + (1 - sigmoid(gate)) * y
        read.append(y @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"])
    layers = [np.concatenate([read, read], axis=1)]
    sides = []
    for way in (0, 1):
        x, outs = np.array(read)[:: 1 - 2 * way], []
        for n in range(2):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            h, c, made = np.zeros(6), np.zeros(9), []
            for given in x:
                i, g, f, o = np.split(np.concatenate([given, h]) @ arrays[f"{cell}/W_0"] + arrays[f"{cell}/B"], 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g), -3, 3)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ arrays[f"{cell}/W_P_0"], -3, 3)
                made.append(h)
            x = np.array(made) + x if n else np.array(made)
            outs.append(x[:: 1 - 2 * way])
        sides.append(outs)
    layers += [np.concatenate([along, against], axis=1) for along, against in zip(*sides, strict=True)]
    return np.array(layers)[:, 1:-1]


def test_elmos_files_give_the_states_of_a_plain_loop_for_words_of_any_spelling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = elmo_arrays()
    loaded, told = imported(capsys, elmo_folder(tmp_path / "elmo", arrays), tmp_path / "out")
    assert "bilstm: 2 layers, width 12" in told and "the vocabulary is empty" in told
    reader = Reader.of(loaded)
    found = dict(token_features(reader, reader.encode(["The naïve cat", TEXT])))
    np.testing.assert_allclose(found[0], elmo_states(arrays, ["The", "naïve", "cat"]), atol=1e-5)
    np.testing.assert_allclose(found[1], elmo_states(arrays, TEXT.split()), atol=1e-5)
    assert load_recipe(tmp_path / "out").networks["main"].part.arguments["inner"] == 9  # type: ignore[union-attr]


@pytest.mark.parametrize(("change", "message"), [
    (lambda arrays, options: arrays.pop("CNN/b_cnn_1"), "there is no CNN/b_cnn_1"),
    (lambda arrays, options: arrays.update(char_embed=array(262, 4)), "char_embed has the shape (262, 4); expected (261, 4)"),
    (lambda arrays, options: options.pop("char_cnn"), "reads a table of words"),
    (lambda arrays, options: options["lstm"].pop("dim"), "not ELMo's options (KeyError('dim'))"),
    (lambda arrays, options: options["char_cnn"].update(activation="gelu"), "expected relu or tanh"),
    (lambda arrays, options: options["lstm"].update(n_layers=10**9), "sizes that no such model has"),
])  # fmt: skip
def test_elmos_files_that_do_not_fit_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    arrays, options = elmo_arrays(), json.loads(json.dumps(ELMO))
    change(arrays, options)
    assert message in refusal(capsys, elmo_folder(tmp_path / "elmo", arrays, options), tmp_path / "out")


def test_a_link_out_of_the_hdf5_file_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h5py = pytest.importorskip("h5py")
    folder = elmo_folder(tmp_path / "elmo", elmo_arrays())
    with h5py.File(folder / "elmo_tiny_weights.hdf5", "a") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink("other.hdf5", "/secret")
    assert "is a link out of its place" in refusal(capsys, folder, tmp_path / "out")


# --- CoVe ----------------------------------------------------------------------------------------------------------------


def glove(place: Path, width: int = 5) -> tuple[Path, dict[str, Any]]:
    rows = {word: array(width) for word in (*TEXT.split(), "don't", "Cat")}
    place.write_text("".join(f"{word} {' '.join(f'{n:.8f}' for n in row)}\n" for word, row in rows.items()))
    return place, rows


def test_coves_lstm_behind_its_word_vectors_is_torchs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    theirs = nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    torch.save(theirs.state_dict(), tmp_path / "wmtlstm-8f474287.pth")
    file, rows = glove(tmp_path / "glove.txt")
    loaded, told = imported(capsys, tmp_path / "wmtlstm-8f474287.pth", tmp_path / "out", "--words", str(file))
    assert "1 of 8 words can never be cut out of a text" in told  # don't
    reader = Reader.of(loaded)
    states = reader.states(reader.batch(reader.encode([f"{TEXT} dog"])), {"hidden"})["hidden"][0].detach().numpy()
    vectors = np.stack([*(rows[word] for word in TEXT.split()), np.zeros(5)])  # a word that GloVe lacks is zero
    with torch.no_grad():
        expected = theirs(torch.tensor(vectors, dtype=torch.float32)[None])[0][0].numpy()
    np.testing.assert_allclose(states, np.concatenate([vectors, expected], axis=1), atol=1e-5)
    assert loaded.network.width == 5 + 14 and load_recipe(tmp_path / "out").name == "wmtlstm-8f474287.pth"


def test_cove_without_words_and_with_vectors_of_another_width_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "wmtlstm.pth"
    torch.save(nn.LSTM(5, 7, num_layers=2, bidirectional=True).state_dict(), place)
    assert f"cloze import {place} --words glove.840B.300d.txt --out DIR" in refusal(capsys, place, tmp_path / "out")
    file, _ = glove(tmp_path / "glove.txt", width=4)
    told = refusal(capsys, place, tmp_path / "out", "--words", str(file))
    assert "vectors of width 4" in told and "reads vectors of width 5" in told


# --- Skip-thought --------------------------------------------------------------------------------------------------------


def skip_thought_folder(place: Path, *, both: bool) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    place.mkdir()
    arrays = {"Wemb": array(9, 4), "decoder_f_W": array(4, 6)}  # what the released program does not read
    for lead in ("encoder", "encoder_r") if both else ("encoder",):
        arrays |= {f"{lead}_W": array(4, 10), f"{lead}_b": array(10), f"{lead}_U": array(5, 10)}
        arrays |= {f"{lead}_Wx": array(4, 5), f"{lead}_bx": array(5), f"{lead}_Ux": array(5, 5)}
    words = ["<eos>", "UNK", *TEXT.split(), "Cat"]
    table = array(len(words), 4, scale=1.0)
    (place / "dictionary.txt").write_text("\n".join(words) + "\n")
    np.save(place / ("btable.npy" if both else "utable.npy"), table)
    name = place / ("bi_skip.npz" if both else "uni_skip.npz")
    np.savez(name, **arrays)
    return name, arrays, dict(zip(words, table, strict=True))


def last_state(arrays: dict[str, Any], lead: str, rows: list[Any]) -> Any:
    """`gru_layer` of skipthoughts.py for one sentence."""
    h = np.zeros(5)
    for x in rows:
        r, u = np.split(sigmoid(h @ arrays[f"{lead}_U"] + x @ arrays[f"{lead}_W"] + arrays[f"{lead}_b"]), 2)
        new = np.tanh((h @ arrays[f"{lead}_Ux"]) * r + x @ arrays[f"{lead}_Wx"] + arrays[f"{lead}_bx"])
        h = u * h + (1 - u) * new
    return h


@pytest.mark.parametrize("both", [False, True])
def test_skip_thoughts_archives_give_the_last_states_of_their_equations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    name, arrays, table = skip_thought_folder(tmp_path / "skip", both=both)
    loaded, _ = imported(capsys, name if both else name.parent, tmp_path / "out")
    texts = ["the cat sat", "the dog sat on the Cat"]
    found = embed(Reader.of(loaded), texts, pooling="summary")
    for vector, text in zip(found, texts, strict=True):
        rows = [table.get(word, table["UNK"]) for word in text.split()]
        expected = [last_state(arrays, "encoder", rows)]
        expected += [last_state(arrays, "encoder_r", rows[::-1])] if both else []
        np.testing.assert_allclose(vector, np.concatenate(expected), atol=1e-5)


def test_roles_without_a_row_are_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, table = skip_thought_folder(tmp_path / "skip", both=False)
    loaded, _ = imported(capsys, name, tmp_path / "out")
    rows = loaded.network.embeddings.tokens.weight.detach().numpy()
    assert not rows[[0, 2]].any()  # [PAD] and [BOS]
    np.testing.assert_array_equal(rows[[1, 3]], [table["UNK"], table["<eos>"]])


def test_two_archives_in_a_folder_and_a_short_dictionary_are_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *_ = skip_thought_folder(tmp_path / "skip", both=False)
    (name.parent / "bi_skip.npz").write_bytes(name.read_bytes())
    told = refusal(capsys, name.parent, tmp_path / "out")
    assert "2 models" in told and f"cloze import {name.parent / 'bi_skip.npz'} --out DIR" in told
    (name.parent / "dictionary.txt").write_text("the\ncat\n")
    assert "utable.npy: 9 rows of 4; dictionary.txt has 2 words" in refusal(capsys, name, tmp_path / "out")
    np.save(name.parent / "utable.npy", np.array([["the", 1.0]], dtype=object), allow_pickle=True)
    assert "not a plain array" in refusal(capsys, name, tmp_path / "out")


# --- AWD-LSTM of fastai --------------------------------------------------------------------------------------------------

ITOS = ["xxunk", "xxpad", "xxbos", "xxfld", "the", "cat", "sat", "on", "a", "mat", "xxfake", "xxfake"]


def awd_lstm_folder(place: Path, *, old: bool = False) -> tuple[Path, nn.Embedding, list[nn.LSTM], dict[str, Any]]:
    """Weights in the names of fastai 1, or 0.7 with its legacy container and endings, and a pickle of protocol 4 or 2."""
    place.mkdir()
    torch.manual_seed(1)
    table, layers = nn.Embedding(len(ITOS), 4), [nn.LSTM(a, b, batch_first=True) for a, b in ((4, 6), (6, 6), (6, 4))]
    inner = "encoder_with_dropout.embed" if old else "encoder_dp.emb"
    state = {"0.encoder.weight": table.weight.data, f"0.{inner}.weight": table.weight.data}
    for n, layer in enumerate(layers):
        for name, tensor in layer.state_dict().items():
            if name == "weight_hh_l0":
                state[f"0.rnns.{n}.{'module.' if old else ''}{name}_raw"] = tensor
                tensor = tensor * 1.25  # what dropout left: not the weights
            if name != "weight_hh_l0" or not old:
                state[f"0.rnns.{n}.module.{name}"] = tensor
    state["1.decoder.weight"] = table.weight.data
    if not old:
        state["1.decoder.bias"] = torch.randn(len(ITOS))
    words = [{"xxunk": "_unk_", "xxpad": "_pad_"}.get(word, word) for word in ITOS] if old else ITOS
    file = place / ("fwd_wt103.h5" if old else "lstm_fwd.pth")
    torch.save(state if old else {"model": state}, file, _use_new_zipfile_serialization=not old)
    (place / ("itos_wt103.pkl" if old else "lstm_fwd_itos.pkl")).write_bytes(pickle.dumps(words, protocol=2 if old else 4))
    return file, table, layers, state


@pytest.mark.parametrize("old", [False, True])
def test_fastais_files_give_the_states_and_scores_of_torchs_lstms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: bool
) -> None:
    name, table, layers, state = awd_lstm_folder(tmp_path / "wt103", old=old)
    loaded, told = imported(capsys, name.parent if old else name, tmp_path / "out")
    assert "3 layers, width 4" in told
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(["the cat zzz sat"]))
    states = reader.states(batch, {"hidden"})["hidden"]
    with torch.no_grad():
        x = table(torch.tensor([[ITOS.index(word) for word in ("xxbos", "the", "cat", "xxunk", "sat")]]))
        for layer in layers:
            x = layer(x)[0]
        torch.testing.assert_close(states, x, atol=1e-5, rtol=0)
        expected = x[0] @ table.weight.t() + state.get("1.decoder.bias", torch.zeros(len(ITOS)))
    scores = reader.scores(loaded.heads["token_prediction"], {"hidden": states}, batch, torch.arange(5)).detach()
    spelled = loaded.tokenizer.spellings
    for ours, theirs in (("the", "the"), ("mat", "mat"), ("xxfld", "xxfld"), ("[BOS]", "xxbos"), ("[UNK]", "xxunk")):
        torch.testing.assert_close(scores[:, spelled.index(ours)], expected[:, ITOS.index(theirs)], atol=1e-5, rtol=0)
    mean = x[0] @ table.weight.detach().mean(0) + state.get("1.decoder.bias", torch.zeros(1)).mean()
    torch.testing.assert_close(scores[:, spelled.index("[EOS]")], mean, atol=1e-5, rtol=0)  # a role that the words lack
    assert [spelled.count(word) for word in ITOS[3:]] == [1] * 9  # the filler, twice in the list, has one id


def test_a_released_language_model_is_a_start_for_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *_ = awd_lstm_folder(tmp_path / "wt103")
    imported(capsys, name, tmp_path / "out")
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "the cat sat\tyes\na mat\tno\n" * 8)
    rows = str(tmp_path / "rows.tsv")
    assert main(["finetune", str(tmp_path / "out"), "--recipe", "ulmfit_classification", "--train", rows, "--show"]) == 0
    assert "lstm:" in capsys.readouterr().out


def test_weights_without_their_words_and_backward_ones_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *_ = awd_lstm_folder(tmp_path / "wt103")
    words = name.with_name("lstm_fwd_itos.pkl")
    words.write_bytes(pickle.dumps(ITOS[:5]))
    assert "has 12 rows of words" in refusal(capsys, name, tmp_path / "out")
    words.unlink()
    assert "put itos.pkl into the same folder" in refusal(capsys, name, tmp_path / "out")
    words.write_bytes(pickle.dumps(ITOS))
    name.rename(name.with_name("lstm_bwd.pth"))
    assert "reads texts from their end" in refusal(capsys, name.with_name("lstm_bwd.pth"), tmp_path / "out")


# --- pickles of strangers ------------------------------------------------------------------------------------------------


class Harmful:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def test_a_pickle_that_would_run_code_is_refused_before_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *_ = awd_lstm_folder(tmp_path / "wt103")
    words = name.with_name("lstm_fwd_itos.pkl")
    words.write_bytes(pickle.dumps([*ITOS, Harmful(tmp_path / "owned")]))
    told = refusal(capsys, name, tmp_path / "out")
    assert "a pickle can run any code" in told and "STACK_GLOBAL" in told
    words.write_bytes(pickle.dumps(ITOS))
    torch.save({"0.encoder.weight": Harmful(tmp_path / "owned")}, name)
    assert "torch does not read it as tensors alone" in refusal(capsys, name, tmp_path / "out")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_lists_of_words_are_read_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    words = ["the", "naïve", "the", "\U0001f600", "x" * 300, *map(str, range(1200))]  # more than one batch of a pickle
    (tmp_path / "itos.pkl").write_bytes(pickle.dumps(words, protocol=protocol))
    assert read_words(tmp_path / "itos.pkl") == words


@pytest.mark.parametrize("data", [
    pickle.dumps({"a": 1}), pickle.dumps(["a", 1]), pickle.dumps([["a"]]), pickle.dumps("a"), b"", b"\x80\x04", b"]q\xffe.",
    pickle.dumps(["a"] * 9)[:-3], b"h\x05.", b"\x80\x04]r\xff\xff\xff\x7f.x",
])  # fmt: skip
def test_other_pickles_are_refused_in_words(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "itos.pkl").write_bytes(data)
    if data.startswith(b"\x80\x04]r"):  # a memo of two thousand million places takes no memory here
        assert read_words(tmp_path / "itos.pkl") == []
        return
    with pytest.raises(CheckpointError, match="list of words"):
        read_words(tmp_path / "itos.pkl")


def test_an_archive_that_would_blow_up_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "uni_skip.npz", encoder_W=np.zeros((1000, 1000), np.float32))
    with pytest.raises(CheckpointError, match="would grow to 4,000,128 bytes"):
        import_released(tmp_path / "uni_skip.npz")
