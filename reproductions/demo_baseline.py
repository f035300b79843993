"""What a linear model makes of the rows of `cloze demo`: TF-IDF of words and pairs of words, and logistic regression.

    pip install scikit-learn
    python reproductions/demo_baseline.py

Prints accuracy and macro-F1 on the test rows, and the CPU seconds of fitting and predicting.
"""

from __future__ import annotations

import time

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline

from cloze.corpus.readers.python_docs import python_docs_records


def main() -> None:
    """Fit on the training rows and print the figures of the test rows."""
    records = list(python_docs_records())
    texts = {part: [record.text for record in records if record.part == part] for part in ("train", "test")}
    labels = {part: [record.package for record in records if record.part == part] for part in ("train", "test")}
    started = time.process_time()
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10, max_iter=1000))
    model.fit(texts["train"], labels["train"])
    predicted = model.predict(texts["test"])
    seconds = time.process_time() - started
    accuracy = accuracy_score(labels["test"], predicted)
    macro_f1 = f1_score(labels["test"], predicted, average="macro")
    print(
        f"{len(texts['train']):,} training rows, {len(texts['test']):,} test rows: "
        f"accuracy {100 * accuracy:.1f} %, macro-F1 {100 * macro_f1:.1f} %, {seconds:.1f} CPU seconds"
    )


if __name__ == "__main__":
    main()
