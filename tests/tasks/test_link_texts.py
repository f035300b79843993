"""Link prediction by networks that read texts: KG-BERT and KEPLER end to end, against transformers, on unseen entities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.knowledge.triple_files import read_graph
from cloze.tasks.intrinsic.link_texts import ConditionedReader, DescriptionReader, TripleReader, scorer_of_any

SAMPLES = Path(__file__).resolve().parents[2] / "cloze" / "samples"
FACTS = SAMPLES / "facts.tsv"
Capture = pytest.CaptureFixture[str]


def trained(name: str, out: Path, *arguments: str) -> Path:
    values = ["--set", "length=24", "--set", "training.batch=4", "--set", "training.held_out=0.0"]
    options = ["--size", "tiny", "--budget", "2steps", "--out", str(out), "--quiet", *values]
    assert main(["pretrain", name, *options, *arguments]) == 0
    return out


@pytest.fixture(scope="module")
def kg_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("kg-bert", tmp_path_factory.mktemp("kg") / "run", "--corpus", str(FACTS))


@pytest.fixture(scope="module")
def kepler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = ["--corpus", str(SAMPLES / "english.txt"), "--bind", f"facts={FACTS}"]
    return trained("kepler", tmp_path_factory.mktemp("kepler") / "run", *text)


def test_kg_bert_scores_triples_as_transformers_does(kg_bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(kg_bert).eval()
    assert type(model).__name__ == "BertForSequenceClassification"
    scorer = scorer_of_any(load_checkpoint(kg_bert), FACTS)
    assert isinstance(scorer, TripleReader)
    encode, ids = load_checkpoint(kg_bert).tokenizer.encode, load_checkpoint(kg_bert).tokenizer.roles
    tails = np.array([[3, 0, 17]])
    found = scorer.scores(np.array([[0, 1, 3]]), 2, tails)[0]
    reader = scorer.reader
    for tail, score in zip(tails[0], found, strict=True):
        tokens, segments = [ids["[CLS]"]], [0]
        for name, segment in ((scorer.entities[0], 0), (scorer.relations[1], 1), (scorer.entities[tail], 0)):
            piece = [*encode(name).ids.tolist(), ids["[SEP]"]]
            tokens, segments = tokens + piece, segments + [segment] * len(piece)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens]), token_type_ids=torch.tensor([segments])).logits[0]
        assert float(score) == pytest.approx(float(logits[1] - logits[0]), abs=1e-4)
        row = scorer.layout([scorer.texts[0], scorer.links[1], scorer.texts[tail]], max_length=scorer.length)
        with torch.no_grad():
            batch = reader.batch([row])
            both = reader.scores(scorer.head, reader.states(batch, scorer.head.reads), batch, torch.arange(1))[0]
        torch.testing.assert_close(both, logits, atol=1e-4, rtol=1e-4)


def test_kepler_is_a_roberta_whose_summaries_are_the_entities(kepler: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(kepler).eval()
    assert type(model).__name__ == "RobertaForMaskedLM"
    loaded = load_checkpoint(kepler)
    scorer = scorer_of_any(loaded, FACTS)
    assert isinstance(scorer, DescriptionReader)
    assert scorer.relations == ("capital", "city in", "language", "continent", "borders")
    roles, name = loaded.tokenizer.roles, scorer.entities[0]
    tokens = torch.tensor([[roles["[CLS]"], *loaded.tokenizer.encode(name).ids.tolist(), roles["[SEP]"]]])
    with torch.no_grad():
        states = model(input_ids=tokens, output_hidden_states=True)
        own = loaded.network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
        head = loaded.heads["token_prediction"]
        logits = head.head(own)
    assert torch.allclose(scorer.vectors[0], states.hidden_states[-1][0, 0], atol=1e-4)
    assert torch.allclose(logits, states.logits, atol=1e-4)


def test_both_sides_and_candidates_agree_with_all_scores(kepler: Path) -> None:
    scorer = scorer_of_any(load_checkpoint(kepler), FACTS)
    triples = read_graph([FACTS]).triples[:5].astype(np.int64)
    chosen = np.array([[4, 1, 0]] * 5)
    for column in (0, 2):
        every = scorer.scores(triples, column, None)  # type: ignore[arg-type]
        some = scorer.scores(triples, column, chosen)  # type: ignore[arg-type]
        assert torch.allclose(every[:, [4, 1, 0]], some, atol=1e-4)
        own = scorer.scores(triples, column, triples[:, [column]])[:, 0]  # type: ignore[arg-type]
        right = scorer.scores(triples, 2 - column, triples[:, [2 - column]])[:, 0]  # type: ignore[arg-type]
        assert torch.allclose(own, right, atol=1e-4)  # the same fact, whichever side is asked for


def test_an_entity_that_training_never_saw_is_ranked_by_its_description(kepler: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "entities.tsv").write_text("N1\ta town by the sea\nN2\tan old kingdom\nN3\tan old kingdom\n")
    (tmp_path / "relations.tsv").write_text("borders\ncapital\n")
    (tmp_path / "new.tsv").write_text("N2\tcapital\tN1\n")
    lists = ["--entities", str(tmp_path / "entities.tsv"), "--relations", str(tmp_path / "relations.tsv")]
    build = ["corpus", "build", str(tmp_path / "new.tsv"), "--format", "triples", *lists, "--out", str(tmp_path / "graph")]
    assert main(build) == 0
    capsys.readouterr()
    asked = ["--task", "link_prediction", "--graph", str(tmp_path / "graph"), "--json"]
    assert main(["evaluate", str(kepler), str(tmp_path / "new.tsv"), *asked]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    scorer = scorer_of_any(load_checkpoint(kepler), tmp_path / "graph")
    heads = scorer.scores(np.array([[1, 1, 0]]), 0, None)[0]
    assert heads[1] == heads[2]  # equal descriptions: a tie, in which the right one stands in the middle
    sides = {side["side"]: side["mean_rank"] for side in found["report"]}
    assert sides["head"] == (1.5 if heads[0] < heads[1] else 2.5)


def test_kg_bert_ranks_100_of_many_entities_and_says_so(kg_bert: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "many.tsv").write_text("".join(f"a{n}\tborders\tb{n}\n" for n in range(80)))
    (tmp_path / "test.tsv").write_text("a1\tborders\tb1\n")
    ask = ["evaluate", str(kg_bert), str(tmp_path / "test.tsv"), "--task", "link_prediction"]
    ask += ["--graph", str(tmp_path / "many.tsv")]
    assert main(ask) == 0
    assert "ranked among 100 random entities: not comparable with ranks among all 160" in capsys.readouterr().out
    assert main([*ask, "--candidates", "all"]) == 0
    assert "random entities" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["kg-bert", "transe"])
def test_triples_are_not_packed(name: str, tmp_path: Path, capsys: Capture) -> None:
    ask = ["pretrain", name, "--size", "tiny", "--budget", "1steps", "--corpus", str(FACTS), "--set", "training.packing=true"]
    assert main([*ask, "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert "this source plans none.\n  Write training: {packing: false}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (None, "reads the texts of entities; --graph GRAPH names the entities that are ranked.\n  Build one: cloze corpus build"),
        ("nowhere", "nowhere"), ("empty.tsv", "no fact whose ids the model knows"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    kg_bert: Path, tmp_path: Path, capsys: Capture, graph: str | None, message: str
) -> None:
    (tmp_path / "empty.tsv").write_text("x\tborders\ty\n")
    named = [] if graph is None else ["--graph", str(tmp_path / graph)]
    assert main(["evaluate", str(kg_bert), str(FACTS), "--task", "link_prediction", *named]) == 2
    assert message in capsys.readouterr().err


def test_a_checkpoint_that_reads_no_graph_is_refused(kepler: Path, tmp_path: Path, capsys: Capture) -> None:
    run = trained("transe", tmp_path / "run", "--corpus", str(FACTS))
    assert main(["evaluate", str(run), str(FACTS), "--task", "link_prediction", "--graph", str(FACTS)]) == 2
    assert "ranks the entities that it was trained on: omit --graph" in capsys.readouterr().err


def test_kepler_whose_relations_have_texts_ranks_a_relation_that_training_never_saw(tmp_path: Path, capsys: Capture) -> None:
    text = ["--corpus", str(SAMPLES / "english.txt"), "--bind", f"facts={FACTS}"]
    run = trained("kepler-rel", tmp_path / "run", *text)
    (tmp_path / "new.tsv").write_text("N2\tlies near\tN1\n")
    capsys.readouterr()
    asked = ["--graph", str(tmp_path / "new.tsv"), "--json"]
    assert main(["evaluate", str(run), str(tmp_path / "new.tsv"), "--task", "link_prediction", *asked]) == 0
    scorer = scorer_of_any(load_checkpoint(run), tmp_path / "new.tsv")
    assert isinstance(scorer, DescriptionReader) and scorer.relations == ("lies near",)
    (step,) = scorer.steps
    place = {name: number for number, name in enumerate(scorer.entities)}
    fact = np.array([[place["N2"], 0, place["N1"]]])
    expected = -torch.linalg.vector_norm(scorer.vectors[place["N2"]] + step - scorer.vectors[place["N1"]])
    for column in (0, 1, 2):
        torch.testing.assert_close(scorer.scores(fact, column, fact[:, [column]])[0, 0], expected)  # type: ignore[arg-type]


def test_kepler_that_reads_relations_with_entities_ranks_by_them(tmp_path: Path, capsys: Capture) -> None:
    run = trained("kepler-cond", tmp_path / "run", "--corpus", str(SAMPLES / "english.txt"), "--bind", f"facts={FACTS}")
    graph = read_graph([FACTS])
    scorer = scorer_of_any(load_checkpoint(run), FACTS)
    assert isinstance(scorer, ConditionedReader)
    head, relation, tail = graph.triples[0].tolist()
    fact = np.array([[head, list(scorer.relations).index(graph.relations[relation]), tail]])
    step, text = scorer.steps[fact[0, 1]], graph.texts[len(graph.entities) + relation]
    with_relation = [scorer.summaries([graph.texts[number]], [text])[0] for number in (head, tail)]
    expected = scorer.vectors[head] + step - with_relation[1], with_relation[0] + step - scorer.vectors[tail]
    for column, difference in zip((0, 2), expected, strict=True):
        found = scorer.scores(fact, column, fact[:, [column]])[0, 0]  # type: ignore[arg-type]
        torch.testing.assert_close(found, -torch.linalg.vector_norm(difference))
    capsys.readouterr()
    assert main(["evaluate", str(run), str(FACTS), "--task", "relation_prediction", "--graph", str(FACTS)]) == 2
    assert capsys.readouterr().err


def test_kg_bert_learns_which_relation_two_entities_have(tmp_path: Path, capsys: Capture) -> None:
    facts = [f"{a} {n}\tof {b}\t{b} {n}" for n in range(8) for a, b in (("cat", "dog"), ("sun", "moon"))]
    (tmp_path / "facts.tsv").write_text("".join(f"{fact}\n" for fact in facts))
    values = [word for one in ("length=12", "training.batch=16", "training.held_out=0.0", "training.rate.peak=1e-3",
                               "network.dropout=0.0", "objectives[0].dropout=0.0") for word in ("--set", one)]
    words = ["pretrain", "kg-bert-relations", "--size", "tiny", "--budget", "20steps", "--as-published", "--quiet", *values]
    assert main([*words, "--corpus", str(tmp_path / "facts.tsv"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    asked = ["evaluate", str(tmp_path / "run"), str(tmp_path / "facts.tsv"), "--graph", str(tmp_path / "facts.tsv")]
    assert main([*asked, "--task", "relation_prediction", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out.partition("\nhint")[0]).values()
    assert found["metrics"]["hits@1"] == 1.0 and found["baseline"]["mean_rank"] == 1.5 and found["examples"] == 16
    assert json.loads((tmp_path / "run" / "config.json").read_text())["id2label"] == {"0": "of dog", "1": "of moon"}
    assert main([*asked, "--task", "link_prediction"]) == 2
    assert "predicts the relation of two entities; it cannot rank entities.\n  To rank relations:" in capsys.readouterr().err
