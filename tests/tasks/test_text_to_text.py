"""Text to text: networks learn to write, and what they write is measured, kept and read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.layout import Framed
from cloze.errors import CheckpointError, TaskError
from cloze.interop import Card, Head, Model, Reading, export_folder
from cloze.networks import Clock, Transformer
from cloze.objectives.token_prediction import token_prediction
from cloze.tasks import Settings, load_tuned, task
from cloze.tasks.evaluation import evaluate, predict
from cloze.tasks.finetune import finetune
from cloze.tasks.result import save_result

Folder = Callable[[str], Path]
WORDS = ("cat", "cheese", "dog", "garden", "mice", "night", "river")
ROWS = [(f"{a} {b}", f"{b} {a}") for a in WORDS for b in WORDS if a < b][:20]
SYSTEMS = ("t5", "bart", "mass")
QUICK = Settings(epochs=60, batch=10, rate=1e-2, patience=None, length=32)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """swap.jsonl: two words, to be written the other way round."""
    path = tmp_path_factory.mktemp("rows") / "swap.jsonl"
    path.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in ROWS))
    return path


@pytest.fixture
def cloze(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command line: exit code, standard output, standard error."""

    def run(*arguments: Any) -> Any:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_writer_learns_to_swap_words_and_its_folder_says_the_same(
    writer: Folder, rows: Path, tmp_path: Path, name: str
) -> None:
    kind = task("text_to_text", prefix="s ", target_length=12)
    loaded, examples = load_checkpoint(writer(name)), kind.read(rows)
    before = {key: value.clone() for key, value in loaded.network.state_dict().items()}
    result = finetune(loaded, kind, examples, examples, settings=QUICK)
    assert result.best.metrics["exact_match"] == result.best.metrics["rougeL"] == 1.0
    assert result.cut["train"] == {"text": 0, "target": 0}
    assert all(torch.equal(before[key], value) for key, value in loaded.network.state_dict().items())
    save_result(tmp_path / "out", result, loaded, facts={})
    again, described = load_tuned(load_checkpoint(tmp_path / "out"))
    assert described["prefix"] == "s " and again.task.target_length == 12
    assert evaluate(again, examples).metrics == pytest.approx(result.best.metrics, abs=1e-5)
    assert [one.record()["output"] for one in predict(again, examples)] == [target for _, target in ROWS]
    searching, _ = load_tuned(load_checkpoint(tmp_path / "out"), again.task.deciding(beams=3, length_penalty=0.5))
    assert [one.record()["output"] for one in predict(searching, examples)] == [target for _, target in ROWS]


def test_a_mass_network_is_tuned_and_its_folder_says_the_same(writer: Folder, rows: Path, tmp_path: Path) -> None:
    kind = task("text_to_text", target_length=12)
    loaded, examples = load_checkpoint(writer("mass")), kind.read(rows)
    result = finetune(loaded, kind, examples, examples, settings=Settings(epochs=4, batch=10, rate=3e-3, patience=None))
    losses = [record["dev"]["loss"] for record in result.log]
    assert losses == sorted(losses, reverse=True)
    save_result(tmp_path / "out", result, loaded, facts={})
    again, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    assert evaluate(again, examples).metrics == pytest.approx(result.best.metrics, abs=1e-5)


def test_one_beam_writes_what_greedy_writes(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text", target_length=9)
    for name in ("t5", "bart"):
        loaded, examples = load_checkpoint(writer(name)), kind.read(rows)
        settings = Settings(epochs=1, batch=20, rate=1e-3)
        greedy = kind.begin(loaded, examples, settings, 1, None)
        beam = kind.deciding(beams=1, length_penalty=None).begin(loaded, examples, settings, 1, None)
        assert [one.record() for one in predict(greedy, examples)] == [one.record() for one in predict(beam, examples)]


def test_the_decoder_reads_the_start_and_the_target_moved_by_one(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    framed = {"t5": ("[PAD]", "{} [EOS]"), "bart": ("[SEP]", "[CLS]{}[SEP]"), "mass": ("[SEP]", "[CLS] {} [SEP]")}
    for name, (start, template) in framed.items():
        learner = kind.begin(load_checkpoint(writer(name)), kind.read(rows), QUICK, 1, None)
        pieces = learner.reader.tokenizer
        (row, *_) = learner.answered(kind.read(rows))
        assert row.target.tolist() == pieces.encode_template(template.format(ROWS[0][1])).ids.tolist()
        seen: dict[str, Any] = {}
        learner.network.register_forward_hook(lambda *given, seen=seen: seen.update(given[2]), with_kwargs=True)
        learner.loss([row])
        assert seen["decoder_tokens"].tolist() == [[pieces.role(start), *row.target.tolist()[:-1]]]


def test_the_loss_of_a_padded_batch_is_the_mean_of_its_tokens(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    learner = kind.begin(load_checkpoint(writer("t5")), kind.read(rows), QUICK, 1, None).eval()
    some = learner.answered(kind.read(rows))[:6]
    assert len({len(row.target) for row in some}) > 1
    with torch.no_grad():
        alone = [float(learner.loss([row])) * len(row.target) for row in some]
        together = float(learner.loss(some))
    assert together == pytest.approx(sum(alone) / sum(len(row.target) for row in some), rel=1e-5)
    assert learner.measure(some, "loss", size=4)["loss"] == pytest.approx(together, rel=1e-5)


def test_smoothing_is_for_training_only(writer: Folder, rows: Path, tmp_path: Path) -> None:
    plain, smooth = task("text_to_text"), task("text_to_text", smoothing=0.2)
    loaded, examples = load_checkpoint(writer("bart")), plain.read(rows)
    one, two = (kind.begin(loaded, examples, QUICK, 1, None).eval() for kind in (plain, smooth))
    pairs = one.answered(examples)
    assert one.measure(pairs, "loss") == two.measure(pairs, "loss")
    assert float(one.loss(pairs).detach()) != float(two.loss(pairs).detach())
    result = finetune(loaded, smooth, examples, examples, settings=Settings(epochs=1, batch=20, rate=1e-3))
    save_result(tmp_path / "out", result, loaded, facts={})
    again, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    assert again.task.smoothing == 0.2 and again.measure(pairs, "loss")["loss"] == pytest.approx(result.best.metrics["loss"])


def test_what_does_not_fit_is_cut_counted_and_keeps_its_end(writer: Folder, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    texts = [("cat dog rain night mice", "cat dog rain night mice"), ("cat", "dog")]
    path.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in texts))
    kind = task("text_to_text", target_length=5)
    loaded, examples = load_checkpoint(writer("t5")), kind.read(path)
    result = finetune(loaded, kind, examples, examples, settings=Settings(epochs=1, length=6, batch=2, rate=1e-3))
    assert result.cut == {"train": {"text": 1, "target": 1}, "dev": {"text": 1, "target": 1}}
    first, second = result.tuned.answered(examples)
    end = loaded.tokenizer.role("[EOS]")
    assert len(first.source) == 6 and len(first.target) == 5 and first.target[-1] == end and second.target[-1] == end
    assert first.reference.split() == texts[0][1].split()


def test_targets_are_compared_as_the_vocabulary_spells_them(writer: Folder, tmp_path: Path) -> None:
    path = tmp_path / "foreign.csv"
    path.write_text("text,target\ncat,ж\ndog,the cat\n", encoding="utf-8")
    kind = task("text_to_text")
    loaded = load_checkpoint(writer("mass"))
    learner = kind.begin(loaded, kind.read(path), QUICK, 1, None)
    assert [row.reference for row in learner.answered(kind.read(path))] == ["[UNK]", "the cat"]
    (remark,) = evaluate(learner, kind.read(path)).remarks
    assert remark == "1 of 2 targets are compared as the vocabulary spells them, not as the file does."


def test_the_same_seed_gives_the_same_weights_and_a_twin_starts_anew(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    loaded, examples = load_checkpoint(writer("mass")), kind.read(rows)
    short = Settings(epochs=2, batch=10, rate=1e-3)
    one, two, other = (finetune(loaded, kind, examples, examples, settings=short, seed=seed).tuned for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    twin = kind.begin(loaded, examples, Settings(from_scratch=True), 1, None)
    assert not torch.equal(twin.network.state_dict()["embeddings.tokens.weight"], loaded.network.embeddings.tokens.weight)
    assert twin.head.head.weight is twin.network.embeddings.tokens.weight


def test_adafactor_runs_at_a_constant_rate(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    loaded, examples = load_checkpoint(writer("t5")), kind.read(rows)
    moments: list[Any] = []
    settings = Settings(epochs=2, batch=10, optimizer="adafactor")
    finetune(loaded, kind, examples, examples, settings=settings, report=moments.append)
    assert {moment.learning_rate for moment in moments} == {1e-3}
    losses = [moment.dev["loss"] for moment in moments if moment.dev]
    assert losses[1] < losses[0] and [set(moment.dev) for moment in moments if moment.dev] == [{"loss"}, {"loss"}]


def test_the_epoch_of_least_loss_is_kept(writer: Folder, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.tasks.answerer import Answerer

    figures = iter([3.0, 1.0, 2.0, 1.0, 1.0])
    full = dict.fromkeys(("exact_match", "f1", "rouge1", "rouge2", "rougeL"), 0.25)
    monkeypatch.setattr(
        Answerer, "measure",
        lambda self, rows, metric=None, **more: {"loss": next(figures), **({} if metric == "loss" else full)},
    )  # fmt: skip
    kind = task("text_to_text")
    examples = kind.read(rows)
    settings = Settings(epochs=9, batch=20, rate=1e-3, patience=2)
    result = finetune(load_checkpoint(writer("t5")), kind, examples, examples, settings=settings)
    assert (result.best.epoch, result.best.epochs) == (2, 4) and result.best.metrics == {"loss": 1.0, **full}


def test_finetune_evaluate_predict_follow_each_other(cloze: Any, writer: Folder, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = ["finetune", writer("t5"), "--task", "text_to_text", "--prefix", "s ", "--target-length", 12, "--length", 32]
    line += ["--train", rows, "--dev", rows, "--test", rows, "--rate", 0.01, "--epochs", 60, "--batch", 10, "--patience", 0]
    done = cloze(*line, "--device", "cpu", "--out", out)
    assert done.code == 0 and "exact_match  1.0000" in done.out and "test rougeL: 1.0000" in done.out
    described = json.loads((out / "cloze" / "task.json").read_text())
    assert described["columns"] == {"text": "text", "target": "target"} and described["baseline"]["exact_match"] == 0.05
    assert described["dev"]["exact_match"] == 1.0 and described["task"] == "text_to_text"
    measured = json.loads(cloze("evaluate", out, rows, "--beams", 2, "--json").out)[str(rows)]
    assert measured["metrics"]["exact_match"] == 1.0 and measured["metrics"]["loss"] == pytest.approx(described["dev"]["loss"])
    assert f"always {described['baseline']['always']!r}" in cloze("evaluate", out, rows).out
    plain = tmp_path / "texts.csv"
    plain.write_text("text\ncat garden\n")
    assert json.loads(cloze("predict", out, plain).out) == {
        "line": 2, "text": "cat garden", "output": "garden cat", "ended": True
    }  # fmt: skip
    assert cloze("predict", out, plain, "--beams", 2, "--out", tmp_path / "p.jsonl").code == 0
    assert cloze("generate", out, "s cat garden", "--greedy", "--tokens", 12).out == "garden cat\n"


TRAIN = ["finetune", "{t5}", "--train", "{rows}", "--dev", "{rows}", "--out", "{here}/o", "--task", "text_to_text"]
CLASSES = ["finetune", "{t5}", "--train", "{rows}", "--dev", "{rows}", "--out", "{here}/o"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([*TRAIN, "--target", "targt"], "no column 'targt'; it has: text, target"),
        ([*TRAIN, "--target-length", "1"], "--target-length 1: expected at least 2"),
        ([*TRAIN, "--smoothing", "1"], "--smoothing 1.0: expected a share of an answer"),
        ([*TRAIN, "--metric", "accuracy"], "unknown metric 'accuracy'"),
        ([*TRAIN, "--optimizer", "adam"], "unknown optimizer 'adam'. Did you mean"),
        ([*TRAIN, "--label", "x"], "--label is no option of text_to_text. Use --task frozen_features or"),
        ([*CLASSES, "--prefix", "x"], "--prefix is no option of sentence_classification. Use --task text_to_text"),
        ([*TRAIN, "--masked", "1.5"], "--masked 1.5: expected a share of a target's tokens"),
        ([*TRAIN, "--masked", "0.5"], "--masked 0.5 is for networks that fill gaps from source to target, such as unilm"),
        ([*TRAIN[:1], "{bert}", *TRAIN[2:]], "text_to_text needs a network that writes; this one only reads (open)"),
        ([*TRAIN[:1], "{electra}", *TRAIN[2:]], "needs a"),
        (["evaluate", "{t5}", "{rows}"], "not fine-tuned"),
    ],
)
def test_wrong_input_is_told_in_a_line_or_two_and_leaves_nothing(
    cloze: Any, writer: Folder, folder: Folder, rows: Path, tmp_path: Path, line: list[str], message: str
) -> None:
    names = {"t5": writer("t5"), "gpt2": folder("gpt2"), "electra": folder("electra"), "bert": folder("bert")}
    shown = cloze(*(part.format(**names, rows=rows, here=tmp_path) for part in line))
    assert shown.code == 2 and message in shown.err and shown.out == ""
    assert len(shown.err.strip().splitlines()) <= 3 and "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_target_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text('text,target\ncat,dog\ndog," "\n')
    with pytest.raises(TaskError, match=r"bad\.csv:3: an empty 'target'; expected a text to write in every row"):
        task("text_to_text").read(path)
    assert task("text_to_text").read(path, labelled=False).targets is None


def test_a_beam_search_is_for_tasks_that_write() -> None:
    with pytest.raises(TaskError, match="are for tasks that write a text; sentence_classification chooses a label"):
        task("sentence_classification").deciding(beams=2, length_penalty=None)
    with pytest.raises(TaskError, match="give --beams too"):
        task("text_to_text").deciding(beams=None, length_penalty=2.0)


def test_a_body_without_a_head_cannot_write(writer: Folder, rows: Path, tmp_path: Path) -> None:
    kind = task("text_to_text")
    loaded = load_checkpoint(writer("t5"))
    headless = SimpleNamespace(**{**vars(loaded), "heads": {}})
    with pytest.raises(CheckpointError, match="needs a head that predicts tokens; this checkpoint has: none"):
        kind.begin(headless, kind.read(rows), QUICK, 1, None)


def test_rows_frame_as_layouts_do(writer: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    learner = kind.begin(load_checkpoint(writer("bart")), kind.read(rows), QUICK, 1, None)
    row = learner.answered(kind.read(rows))[0]
    assert isinstance(row.source, Framed) and len(row) == len(row.source) + len(row.target)
    assert row.target.dtype == np.int32


@pytest.fixture(scope="module")
def one_row(tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[..., Any]) -> Folder:
    """`one_row("unilm")` or "gpt2": a fresh network that answers a text in its own row, as a folder."""
    made: dict[str, Path] = {}
    reading = Reading(
        "[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first", orders=("open", "source_to_target"), segments=(4, 5)
    )
    kinds: dict[str, tuple[dict[str, Any], str, str, Reading]] = {
        "unilm": ({"segments": 6, "layers": 2}, "open", "bert", reading),
        "gpt2": ({"norm": "pre", "residual_scaling": True}, "left_to_right", "gpt2", Reading("{A}", None, "last")),
    }

    def export(name: str) -> Path:
        if name not in made:
            further, order, like, how = kinds[name]
            pieces = checkpoint(like).tokenizer
            arguments = {"layers": 1, "width": 32, "heads": 2, "longest": 40, "dropout": 0.0, "deviation": 0.1, **further}
            with torch.random.fork_rng():
                torch.manual_seed(0)
                network = Transformer(**arguments, vocab_size=pieces.size, clock=Clock())
                head = token_prediction(tie=True, width=32, vocab_size=pieces.size, table=network.tables["tokens"])
            heads = {"words": Head("token_prediction", {"tie": True}, head.state_dict())}
            made[name] = tmp_path_factory.mktemp("rows") / name
            export_folder(
                made[name], model=Model(arguments, order, network.state_dict(), heads), tokenizer=pieces, reading=how,
                card=Card(name),
            )
        return made[name]

    return export


@pytest.mark.parametrize("name", ["unilm", "gpt2"])
def test_a_network_without_a_decoder_learns_to_swap_words_in_its_own_row(
    cloze: Any, one_row: Folder, rows: Path, tmp_path: Path, name: str
) -> None:
    kind = task("text_to_text", target_length=12)
    loaded, examples = load_checkpoint(one_row(name)), kind.read(rows)
    settings = Settings(epochs=60, batch=10, rate=5e-3, patience=None)
    result = finetune(loaded, kind, examples, examples, settings=settings)
    assert result.best.metrics["exact_match"] == 1.0 and result.best.metrics["loss"] < 0.1
    save_result(tmp_path / "out", result, loaded, facts={})
    again = load_checkpoint(tmp_path / "out")
    assert again.order == loaded.order and "source_to_target" in again.reading.orders
    learner, described = load_tuned(again)
    assert "masked" not in described and evaluate(learner, examples).metrics == pytest.approx(result.best.metrics, abs=1e-5)
    text, target = ROWS[0]
    searching, _ = load_tuned(again, learner.task.deciding(beams=2, length_penalty=None))
    assert [one.record()["output"] for one in predict(searching, examples)] == [target for _, target in ROWS]
    assert cloze("generate", tmp_path / "out", text, "--greedy", "--tokens", 12).out == target + "\n"
    lines = [f"{text}\t{target}", f"{text}\t{text}"]
    shown = cloze("score", tmp_path / "out", *lines, "--order", "source_to_target").out.splitlines()
    right, wrong = (float(line.split("\t")[0]) for line in shown)
    assert right > wrong + 2 and [line.split("\t", 2)[2] for line in shown] == lines
    line = ["score", tmp_path / "out", "--file", rows, "--order", "source_to_target", "--perplexity", "--json"]
    whole = json.loads(cloze(*line).out)
    assert np.log(whole["perplexity"]) == pytest.approx(result.best.metrics["loss"], abs=1e-4) and whole["texts"] == len(ROWS)
    assert len(cloze("score", tmp_path / "out", text).out.split("\t")) == 3


def test_how_much_of_a_target_is_hidden_is_kept(one_row: Folder, rows: Path, tmp_path: Path) -> None:
    kind = task("text_to_text", target_length=12, masked=0.4)
    loaded, examples = load_checkpoint(one_row("unilm")), kind.read(rows)
    result = finetune(loaded, kind, examples, examples, settings=Settings(epochs=1, batch=10, rate=1e-3))
    save_result(tmp_path / "out", result, loaded, facts={})
    learner, described = load_tuned(load_checkpoint(tmp_path / "out"))
    assert described["masked"] == learner.task.masked == 0.4


def test_the_same_seed_hides_the_same(one_row: Folder, rows: Path) -> None:
    kind = task("text_to_text")
    loaded, examples = load_checkpoint(one_row("unilm")), kind.read(rows)
    short = Settings(epochs=2, batch=10, rate=1e-3)
    one, two, other = (finetune(loaded, kind, examples, examples, settings=short, seed=seed) for seed in (1, 1, 2))
    assert one.best.metrics == two.best.metrics != other.best.metrics


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["{t5}", "no tab"], "'no tab': 0 tabs, expected one. This network scores a text as the answer to another"),
        (["{t5}", "--file", "{here}/x.tsv"], "no such file"),
        (["{t5}", "--file", "{rows}", "--target", "targt"], "expected the columns text and targt, found: text, target"),
        (["{t5}", "--file", "{odd}"], "expected the columns text and target, found: question, answer.\n  Name them with --field"),
        (["{t5}", "--file", "{rows}", "--memory", "4"], "--segment and --ends are for texts that follow each other"),
        (["{t5}", "--file", "{rows}", "--ends"], "--segment and --ends are for texts that follow each other"),
        (["{t5}", "--pairs", "{rows}"], "sentence_good"),
        (["{gpt2}", "a\tb", "--order", "source_to_target"], "does not read in the order source_to_target"),
        (["{gpt2}", "a", "--memory", "4"], "--memory is for networks that remember what they read before"),
        (["{gpt2}", "a", "--clamp", "4"], "say how --memory is read"),
        (["{gpt2}", "a", "--pointer-share", "0.5"], "say how --pointer works; give that too, such as --pointer 500"),
        (["{gpt2}", "a", "--pointer-scale", "1.0"], "say how --pointer works"),
        (["{gpt2}", "a", "--memory", "4", "--pointer", "2"], "--memory is for networks that remember what they read before"),
        (["{gpt2}", "--pairs", "{rows}", "--pointer", "2"], "Give one of them"),
        (["{gpt2}", "--pairs", "{rows}", "--perplexity"], "Give one of them"),
    ],
)
def test_faults_of_scoring_are_told(
    cloze: Any, writer: Folder, one_row: Folder, rows: Path, tmp_path: Path, line: list[str], message: str
) -> None:
    names = {"t5": writer("t5"), "gpt2": one_row("gpt2"), "rows": rows, "here": tmp_path, "odd": tmp_path / "odd.tsv"}
    names["odd"].write_text("question\tanswer\ncat dog\tdog cat\n")
    shown = cloze("score", *(part.format(**names) for part in line))
    assert shown.code == 2 and message in shown.err and shown.out == "" and len(shown.err.strip().splitlines()) <= 3


def test_an_encoder_decoder_scores_answers_from_lines_and_tables(cloze: Any, writer: Folder, tmp_path: Path) -> None:
    lines, table = tmp_path / "pairs.txt", tmp_path / "pairs.tsv"
    lines.write_text("cat dog\tdog cat\nriver\tnight\n")
    table.write_text("text\ttarget\ncat dog\tdog cat\nriver\tnight\n")
    one, two = (cloze("score", writer("bart"), "--file", path) for path in (lines, table))
    assert one.code == 0 and one.out == two.out and one.out.splitlines()[1].endswith("\triver\tnight")
    record = json.loads(cloze("score", writer("bart"), "river\tnight", "--json").out)
    assert record["text"] == "river" and record["target"] == "night" and record["method"] == "log_probability"
    assert f"{record['score']:.4f}" == one.out.splitlines()[1].split("\t")[0]


@pytest.mark.parity
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_transformers_opens_the_folder_with_the_same_loss_and_writes_the_same(
    writer: Folder, rows: Path, tmp_path: Path, name: str
) -> None:
    transformers = pytest.importorskip("transformers")
    kind = task("text_to_text", prefix="s ", target_length=12)
    loaded, examples = load_checkpoint(writer(name)), kind.read(rows)
    result = finetune(loaded, kind, examples, examples, settings=Settings(epochs=4, batch=10, rate=1e-2, patience=None))
    assert save_result(tmp_path / "out", result, loaded, facts={}) == []
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["s " + text for text, _ in ROWS]
    encoded = tokenizer(texts, text_target=[target for _, target in ROWS], padding=True, return_tensors="pt")
    labels = encoded["labels"].masked_fill(encoded["labels"] == tokenizer.pad_token_id, -100)
    read = {key: encoded[key] for key in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        loss = float(model(**read, labels=labels).loss)
        written = model.generate(**read, max_new_tokens=12, num_beams=3)
    assert result.best.metrics["loss"] == pytest.approx(loss, abs=1e-4)
    beam, _ = load_tuned(load_checkpoint(tmp_path / "out"), kind.deciding(beams=3, length_penalty=None))
    theirs = tokenizer.batch_decode(written, skip_special_tokens=True)
    assert [one.record()["output"].split() for one in predict(beam, examples)] == [text.split() for text in theirs]
