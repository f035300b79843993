"""A checkpoint with a method for each of its uses: strings in, arrays and small records out."""

from __future__ import annotations

import json
import re
import shutil
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from cloze.api.items import ItemFiles, item_files
from cloze.api.predictions import Predictions
from cloze.api.summary import model_html, model_line
from cloze.api.texts import as_list, for_each_text, reading_files
from cloze.arguments import check_arguments, with_checked_methods
from cloze.bounds import Count
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.corpus.readers.hub_tables import local_table
from cloze.decoding.filling import Filled, fill
from cloze.decoding.generating.drafting import Draft
from cloze.decoding.generating.generation import Generated, generate, remark_on_cut
from cloze.decoding.generating.options import WritingOptions, parts_of
from cloze.decoding.lengths import cut_remark
from cloze.decoding.links import given_links
from cloze.decoding.pictures import pictures_for, shown_picture
from cloze.decoding.reader_and_head import check_scored, to_embed, to_fill, to_generate, to_score
from cloze.decoding.scores.answer_scoring import score_answers
from cloze.decoding.scores.scoring import Score, score
from cloze.decoding.scores.windows import Windows
from cloze.decoding.unknown import vector_remarks
from cloze.decoding.vectors.embedding import Pooling, VectorOf, as_trained, cut_text_remark, embed, frame_texts
from cloze.decoding.vectors.neighbours import Method, Neighbour, analogy, neighbours
from cloze.decoding.vectors.word_sets import fitting
from cloze.errors import CheckpointError, ClozeError, UserError
from cloze.hub import local_folder, publish
from cloze.interop.vectors import Vectors, open_vectors
from cloze.interop.vectors.checkpoint import has_vectors
from cloze.recipe.user_files import import_files
from cloze.reports.plot import Figures, plot_run
from cloze.runs.finetuning.leakage import shared_row_note
from cloze.tasks.evaluation import evaluate
from cloze.tasks.given import given_examples, given_file
from cloze.tasks.in_memory import each_text
from cloze.tasks.pictures import show_pictures
from cloze.tasks.task import Evaluation, Learner, Prediction
from cloze.tasks.task_json import constant_answer_of
from cloze.tasks.tuned_folder import load_tuned, read_task_json
from cloze.training.run import Outcome

T = TypeVar("T")
Texts = Iterable[str]


@with_checked_methods
class Model:
    """A checkpoint ready for use: `cloze.load(folder)` opens one, `cloze.pretrain` and `cloze.finetune` return one.

    Every method takes one string or a list. A string gives one result; a list gives a list, or an array, in the same order.
    `can` names the methods that this checkpoint supports; any other raises a `CheckpointError` that names them.
    `cloze.frame(results)` turns the results of a method into a data frame.

    Attributes:
        checkpoint: The network, its heads, the tokenizer and the input templates.
        outcome: How the training ended. None if the model was loaded.
    """

    def __init__(self, checkpoint: Loaded, *, outcome: Outcome | None = None, temporary: Path | None = None) -> None:
        self.checkpoint, self.outcome = checkpoint, outcome
        self._learners: dict[tuple[str | None, int | None], tuple[Learner, Mapping[str, Any]]] = {}  # by task and length
        if temporary is not None:  # it goes with the model
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """The folder that the model was loaded from."""
        return Path(self.checkpoint.folder)

    @property
    def network(self) -> Any:
        """The torch module, in eval mode."""
        return self.checkpoint.network

    @property
    def tokenizer(self) -> Any:
        """The tokenizer: `encode`, `decode`, `size`."""
        return self.checkpoint.tokenizer

    @cached_property
    def described(self) -> Mapping[str, Any]:
        """The record of fine-tuning (`cloze/task.json`); empty if the model was not fine-tuned."""
        try:
            return read_task_json(self.folder)
        except CheckpointError:
            return {}

    @property
    def task(self) -> str | None:
        """The task that the model was fine-tuned for. None if there is none, or several."""
        return self.described.get("task")

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks of a model that was fine-tuned for several; `predict` and `evaluate` take one of them."""
        return tuple(self.described.get("tasks") or ())

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the model chooses among."""
        return tuple(self.described.get("labels") or ())

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics on the dev set of fine-tuning."""
        return dict(self.described.get("dev") or {})

    @cached_property
    def can(self) -> tuple[str, ...]:
        """The names of the methods that this checkpoint supports."""
        needs: dict[str, Callable[[], Any]] = {
            "fill": lambda: to_fill(self.checkpoint), "generate": lambda: to_generate(self.checkpoint),
            "embed": lambda: to_embed(self.checkpoint), "score": lambda: to_score(self.checkpoint),
            "predict": lambda: read_task_json(self.folder), "evaluate": lambda: read_task_json(self.folder),
            "neighbours": self._require_vectors, "analogy": self._require_vectors,
        }  # fmt: skip
        return tuple(name for name, need in needs.items() if _works(need))

    def __repr__(self) -> str:
        """One line: the kind of model, its size, its methods."""
        return model_line(self)

    def _repr_html_(self) -> str:
        """The same as tables, with losses and scores, for notebooks."""
        return model_html(self)

    @overload  # a string is an iterable of strings, too, and comes first
    def fill(  # type: ignore[overload-overlap]
        self, texts: str, *, top: int = 5, items: ItemFiles = None, picture: str | None = None,
        links: Sequence[Any] | None = None, language: str | None = None, batch: int = 32,
    ) -> Filled: ...
    @overload
    def fill(
        self, texts: Texts, *, top: int = 5, items: ItemFiles = None, picture: str | None = None,
        links: Sequence[Any] | None = None, language: str | None = None, batch: int = 32,
    ) -> list[Filled]: ...
    def fill(
        self, texts: str | Texts, *, top: Count = 5, items: ItemFiles = None, picture: str | None = None,
        links: Sequence[Any] | None = None, language: str | None = None, batch: Count = 32,
    ) -> Any:
        """The `top` most probable words for every [MASK].

        Args:
            texts: One string or several.
            top: How many words for each mask.
            items: The file with the items of a picture that all texts are read with, for networks that read some.
            picture: The key of the picture; default: the only one of the file.
            links: Which words mean which item: `[(2, 8, 0)]`, the first character, the one after the last, and the item; for
                several texts a list for each.
            language: The language of the texts, for networks that read one.
            batch: Texts at once.

        Returns:
            A `Filled` per text: `best` is the completed text, `masks` holds the candidates for each mask.

        Raises:
            UserError: A text has no mask, or is longer than the network can read.
        """
        self._require("fill", lambda: to_fill(self.checkpoint))
        ready = to_fill(self.checkpoint, language=language)
        reader = replace(ready.reader, pictures=shown_picture(self.checkpoint, item_files(items), picture))

        def made(strings: Sequence[str]) -> Sequence[Filled]:
            linked = given_links(self.checkpoint, reader, strings, json.dumps(links) if links else None, None, "text")
            return fill(reader, ready.head, strings, top=top, rows=batch, links=linked)

        return for_each_text(texts, made)

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, texts: str = "", *, tokens: int = 64, draft: Model | None = None, seed: int = 0, language: str | None = None,
        to: str | None = None, items: ItemFiles = None, picture: str | None = None, batch: int = 32,
        **options: Unpack[WritingOptions],
    ) -> Generated: ...
    @overload
    def generate(
        self, texts: Texts, *, tokens: int = 64, draft: Model | None = None, seed: int = 0, language: str | None = None,
        to: str | None = None, items: ItemFiles = None, picture: str | None = None, batch: int = 32,
        **options: Unpack[WritingOptions],
    ) -> list[Generated]: ...
    def generate(
        self, texts: str | Texts = "", *, tokens: Count = 64, draft: Model | None = None, seed: int = 0,
        language: str | None = None, to: str | None = None, items: ItemFiles = None, picture: str | None = None,
        batch: Count = 32, **options: Unpack[WritingOptions],
    ) -> Any:
        """Continue every text by up to `tokens` tokens. An encoder-decoder generates its output for the text; of one that is too
        long it reads the beginning, with a warning.

        Args:
            texts: What the model reads.
            tokens: The most tokens to generate.
            draft: A smaller model with the same vocabulary that proposes tokens, to be faster. At temperature 0 the texts are
                the same, otherwise they have the same distribution.
            seed: Equal seeds give equal texts.
            language: The language of the texts, for networks that read one.
            to: The language to write, for networks that translate into several.
            items: The file with the items of a picture or film that all texts are read with, for networks that read some.
            picture: The key of the picture; default: the only one of the file.
            batch: Texts at once.
            options: How to write: `temperature`, `top_k`, `top_p`, `min_p`, `typical_p`; `beams`, `best`, `groups`, `diversity`,
                `sampled`, `length_penalty`, `early`; `no_repeat`, `min_tokens`, `repetition_penalty`, `ban`, `first`, `stop`.

        Returns:
            A `Generated` per text. With `best` above 1, so many for each text, one after another.

        Raises:
            UserError: An option does not exist or its value is impossible.
        """
        self._require("generate", lambda: to_generate(self.checkpoint))
        ready = to_generate(self.checkpoint, language=language, to=to)
        reader = replace(ready.reader, pictures=shown_picture(self.checkpoint, item_files(items), picture))
        how = parts_of(reader, options)
        if draft is not None:
            how["draft"] = Draft(*to_generate(draft.checkpoint, language=language, to=to)[:2])

        def write(strings: list[str]) -> list[Generated]:
            generated = generate(reader, ready.head, strings, tokens=tokens, seed=seed, rows=batch, **how)
            if (remark := remark_on_cut(generated)) is not None:
                warnings.warn(f"{remark}.", stacklevel=5)
            return generated

        if isinstance(texts, str) and how["beams"] is not None and how["beams"].best > 1:
            return write([texts])
        return for_each_text(texts, write)

    def embed(
        self, texts: str | Texts, *, layer: int = -1, pooling: Pooling | None = None, normalise: bool = False,
        length: Count | None = None, prompt: str | None = None, language: str | None = None, batch: Count | None = None,
        items: ItemFiles = None, picture: str | Sequence[str] | None = None, of: VectorOf = "text",
    ) -> NDArray[np.float32]:
        """One vector per text. Texts that are too long are cut, with a warning; that of a text without tokens is zero.

        Args:
            texts: One string or several.
            layer: 0 is the embeddings; negative numbers count from the last layer.
            pooling: mean, max, first or summary; default: as the checkpoint was trained to give vectors, else mean.
            normalise: Divide each vector by its length, so that dot products are cosines.
            length: The most tokens to read of a text.
            prompt: The name of a prompt of the folder, which comes before each text; default: the folder's default, if any.
            language: The language of the texts, for networks that read one.
            batch: Texts at once; default: by their length.
            items: The file with the items of pictures that texts are read with, for networks that read some.
            picture: The key of the picture, or one for each text; default: the only one of the file.
            of: What vectors are of: text, items, or pair, both in one vector.

        Returns:
            An array (texts, width) of float32; (width,) for one string.
        """
        self._require("embed", lambda: to_embed(self.checkpoint))
        reader, trained_head, _ = to_embed(self.checkpoint, language=language)
        strings, alone = as_list(texts)
        trained = as_trained(layer, pooling, of)
        framed = frame_texts(self.checkpoint, reader, strings, trained=trained, prompt=prompt, length=length)
        if remark := cut_text_remark(framed):
            warnings.warn(remark, stacklevel=3)
        head = trained_head if trained else None
        pictures, framed = pictures_for(self.checkpoint, framed, item_files(items), picture)
        reader = replace(reader, pictures=pictures)
        vectors = embed(reader, framed, layer=layer, pooling=pooling, normalise=normalise, rows=batch, head=head, of=of)
        for remark in vector_remarks(reader, framed, vectors, head=head):
            warnings.warn(remark, stacklevel=3)
        return vectors[0] if alone else vectors

    @overload
    def score(  # type: ignore[overload-overlap]
        self, texts: str, answers: str | None = None, *, order: str | None = None, stride: int | None = None,
        truncate: bool = False, language: str | None = None, to: str | None = None,
    ) -> Score: ...
    @overload
    def score(
        self, texts: Texts, answers: Texts | None = None, *, order: str | None = None, stride: int | None = None,
        truncate: bool = False, language: str | None = None, to: str | None = None,
    ) -> list[Score]: ...
    def score(
        self, texts: str | Texts, answers: str | Texts | None = None, *, order: str | None = None,
        stride: int | None = None, truncate: bool = False, language: str | None = None, to: str | None = None,
    ) -> Any:
        """The log-probability of every text (natural logarithm).

        A network that reads from left to right gives log P(text). A network that fills gaps gives the pseudo-log-likelihood:
        each token is masked alone. A discriminator gives the log-probability that all tokens are original. An encoder-decoder
        scores `answers`, one per text.

        Args:
            texts: One string or several.
            answers: The outputs of an encoder-decoder.
            order: Read in this order, if the network has several.
            stride: Split long texts into windows that start this many tokens apart. None: half a window.
            truncate: Cut an answer or its text if they are too long, instead of raising an error.
            language: The language of the texts, for networks that read one.
            to: The language of the answers, for networks that translate into several.

        Returns:
            A `Score` per text: `score`, `tokens` and `per_token`.
        """
        self._require("score", lambda: to_score(self.checkpoint))
        ready = to_score(self.checkpoint, order=order, language=language, to=to)
        method = ready.method
        check_scored(method, answers=answers is not None, stride=stride, truncate=truncate)
        if method is None:
            outputs, (sources, alone) = as_list(answers or ())[0], as_list(texts)
            if len(outputs) != len(sources):
                raise UserError(f"score: {len(sources)} texts and {len(outputs)} answers; expected as many of both.")
            scores = score_answers(ready.reader, ready.head, sources, outputs, truncate=truncate) if sources else []
            return scores[0] if alone else list(scores)
        windows = Windows(None, stride)
        return for_each_text(texts, lambda lines: score(ready.reader, ready.head, lines, method=method, windows=windows))

    @overload
    def predict(
        self, texts: str, *, task: str | None = None, items: ItemFiles = None, length: int | None = None, batch: int = 64
    ) -> Any: ...
    @overload
    def predict(
        self, texts: Path | Iterable[Any], *, task: str | None = None, items: ItemFiles = None, length: int | None = None,
        batch: int = 64, encoding: str | None = None,
    ) -> list[Any]: ...
    def predict(
        self, texts: str | Path | Iterable[Any], *, task: str | None = None, items: ItemFiles = None, length: Count | None = None,
        batch: Count = 64, encoding: str | None = None,
    ) -> Any:
        """The predictions of a fine-tuned model. Texts that are too long are cut, with a warning.

        Args:
            texts: Strings; for a task with several texts, tuples of strings; or dictionaries, a data frame or a data set. A
                `Path` is read as `cloze predict` reads it.
            task: The name of the task, if the model has several `tasks`.
            items: The file with the items of the pictures, for a model that was fine-tuned with some: tuples of text and key.
            length: How many tokens of a text are read; default: as in training.
            batch: Texts at once.
            encoding: The encoding of a file. None: it is detected.

        Returns:
            A prediction per text. A classifier's is a `PredictedClass` with `label`, `probability` and `probabilities`. For
            several texts they are a list whose `probabilities` are an array (texts, classes), in the order of `model.labels`.
        """
        self._require("predict", lambda: read_task_json(self.folder))
        learner, _ = self._learned(task, length)
        alone = isinstance(texts, str)
        if isinstance(texts, (list, tuple)) and not texts:
            return Predictions([], learner.labels or ())
        with reading_files(encoding), given_examples(learner.task, [texts] if alone else texts, labelled=False) as examples:
            learner = self._shown(learner, items, task, length, examples)
            predictions: Sequence[Prediction] = learner.predict(examples, size=batch)
        cut = [prediction.cut for prediction in predictions]
        for remark in filter(None, (cut_remark(cut, learner.length), *learner.remarks_on_texts(examples))):
            warnings.warn(remark, stacklevel=3)
        return predictions[0] if alone else Predictions(predictions, learner.labels or ())

    def evaluate(
        self, rows: str | Path | Iterable[Any], *, task: str | None = None, items: ItemFiles = None,
        length: Count | None = None, bootstrap: int | None = None, seed: int = 0, batch: Count = 64, encoding: str | None = None,
    ) -> Evaluation:
        """The metrics of a fine-tuned model on labelled rows. Rows that it is trained on are a warning.

        Args:
            rows: Tuples `(text, label)`, dictionaries, a data frame, a data set, or a file.
            task: The name of the task, if the model has several `tasks`.
            items: The file with the items of the pictures that rows are about.
            length: How many tokens of a text are read; default: as in training.
            bootstrap: Resample the examples this many times and return 95 % confidence intervals.
            seed: The seed of the resampling.
            batch: Rows at once.
            encoding: The encoding of a file. None: it is detected.
        """
        self._require("evaluate", lambda: read_task_json(self.folder))
        learner, task_json = self._learned(task, length)
        source = local_table(str(rows)) if isinstance(rows, (str, Path)) else rows
        constant_answer = constant_answer_of(task_json)
        with reading_files(encoding), given_file(learner.task, source, labelled=True) as file:
            examples = file.read(learner.task, labelled=True)
            with file.encoded():
                note = shared_row_note(self.folder, file.path, task=task, in_memory=file.in_memory)
            if note:
                warnings.warn(note.removeprefix("note: "), stacklevel=3)
            learner = self._shown(learner, items, task, length, examples)
            return evaluate(learner, examples, constant_answer=constant_answer, size=batch, bootstrap=bootstrap, seed=seed)

    @overload
    def neighbours(  # type: ignore[overload-overlap]
        self, words: str, *, count: int = 10, restrict: int | None = None
    ) -> list[Neighbour]: ...
    @overload
    def neighbours(self, words: Texts, *, count: int = 10, restrict: int | None = None) -> list[list[Neighbour]]: ...
    def neighbours(self, words: str | Texts, *, count: Count = 10, restrict: Count | None = None) -> Any:
        """The `count` words whose vectors have the highest cosine with the vector of a word, best first.

        For a Transformer these are the rows of its token embeddings. `restrict` searches the first so many words only.
        """
        self._require("neighbours", self._require_vectors)
        return for_each_text(words, lambda queries: neighbours(self.vectors, queries, count=count, restrict=restrict))

    def analogy(
        self, a: str, b: str, c: str, *, method: Method = "add", count: Count = 10, restrict: Count | None = None
    ) -> list[Neighbour]:
        """The words that are to `c` as `b` is to `a`, best first: `model.analogy("man", "king", "woman")`."""
        self._require("analogy", self._require_vectors)
        return analogy(self.vectors, a, b, c, method=method, count=count, restrict=restrict)

    def doesnt_match(self, words: Texts) -> str:
        """The word that fits the others least: `model.doesnt_match(["breakfast", "cereal", "dinner", "lunch"])`."""
        self._require("neighbours", self._require_vectors)
        return fitting(self.vectors, list(each_text(words)))[0].word

    @cached_property
    def vectors(self) -> Vectors:
        """The word vectors: `words`, `matrix` (N, D), `vector(word)`."""
        return open_vectors(self.folder)

    def plot(self) -> Figures:
        """The losses of the training with their baselines, and the scores on dev, as figures: `plot().save("losses.svg")`.

        Raises:
            CheckpointError: The folder has no log: it is not that of a training.
        """
        return plot_run(self.folder, what="model.plot")

    def save(self, folder: str | Path) -> Path:
        """Write the model to a new folder that `cloze.load` and transformers open, without training text or checkpoints."""
        from cloze.checkpoint.share import share

        share(self.folder, Path(folder))
        return Path(folder)

    def push(self, name: str, *, public: bool = False) -> str:
        """Upload what `save` writes to the Hugging Face Hub as `ORG/NAME`; a new model is private unless `public`.

        Returns the model's address. Somebody who may write there must be logged in: `hf auth login`.
        """
        with TemporaryDirectory() as parent:
            return publish(self.save(Path(parent) / name.rpartition("/")[2]), name, public=public)

    def _learned(self, task: str | None, length: int | None) -> tuple[Learner, Mapping[str, Any]]:
        if (task, length) not in self._learners:
            self._learners[task, length] = load_tuned(self.checkpoint, name=task, length=length)
        return self._learners[task, length]

    def _shown(self, learner: Learner, items: ItemFiles, task: str | None, length: int | None, examples: Any) -> Learner:
        """The learner next to the pictures that examples name."""
        files = item_files(items)
        return load_tuned(show_pictures(self.checkpoint, files, [examples]), name=task, length=length)[0] if files else learner

    def _require(self, name: str, need: Callable[[], Any]) -> None:
        """Refuse a method that the checkpoint does not support; the message names those that it does."""
        try:
            need()
        except ClozeError as error:
            why = re.sub(r"\bcloze ([a-z]+)\b", r"\1", str(error).splitlines()[0])
            able = ", ".join(f"model.{method}()" for method in self.can) or "nothing that has a method"
            raise CheckpointError(f"model.{name}: {why}\n  This model can: {able}.") from None

    def _require_vectors(self) -> None:
        if not has_vectors(self.checkpoint.imported.model):
            raise CheckpointError(f"{self.folder}: this network has no table with a vector for every token.")


@check_arguments
def load(folder: str | Path, *, device: str = "auto", precision: str = "fp32", with_files: Sequence[str | Path] = ()) -> Model:
    """Open a run folder, a fine-tuned folder, or a Hugging Face folder of a kind that `cloze import` reads.

    Args:
        folder: The folder, or a model's name on the Hugging Face Hub, `ORG/NAME` or `ORG/NAME@REVISION`.
        device: auto, cpu, cuda or cuda:N.
        precision: fp32, bf16 (faster where the hardware multiplies it; answers have about three digits) or auto.
        with_files: Python files that register parts of your own.

    Raises:
        CheckpointError: The folder is missing, damaged or of an unknown kind, or it has a part that no code registers. If the
            part came from a file of yours, `cloze/code` holds a copy; it only runs if you name it in `with_files`.
    """
    import_files(with_files)
    return Model(load_checkpoint(local_folder(folder), device, precision=precision))


def _works(need: Callable[[], Any]) -> bool:
    with suppress(ClozeError):
        need()
        return True
    return False
