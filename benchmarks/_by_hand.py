"""What a careful person would write without TFX: the taxi CSV -> a trained and exported model.

Arrow reads the file, NumPy splits and normalises it, Keras trains the layers of the taxi example,
and scikit-learn evaluates, in all and per payment type. One process; all rows are in memory.

    python _by_hand.py CSV FOLDER
"""

from __future__ import annotations

import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "0"

import keras
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from keras import layers
from sklearn.metrics import accuracy_score, roc_auc_score

TEXTS = ("pickup_census_tract", "dropoff_census_tract", "company", "payment_type")
PLACES = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")
IDS = {
    "pickup_community_area": 78,
    "dropoff_community_area": 78,
    "trip_start_hour": 24,
    "trip_start_day": 8,
    "trip_start_month": 13,
}
VOCABULARY = 1000
EPOCHS, BATCH_ROWS = 2, 4096


def main(path: str, folder: str) -> None:
    """Read, split, normalise, train, evaluate, export."""
    table = read(path)
    tips, fare = numbers(table, "tips"), numbers(table, "fare")
    label = (5 * np.round(100 * tips) > np.round(100 * fare)).astype(np.float32)
    held_out = hash_of_rows(table) % 100 < 33
    inputs = [dense(table, ~held_out), *ids(table, ~held_out)]
    model = network(inputs[0].shape[1], [int(each.max()) + 1 for each in inputs[1:]])
    model.fit(
        [each[~held_out] for each in inputs],
        label[~held_out],
        batch_size=BATCH_ROWS,
        epochs=EPOCHS,
        verbose=0,
    )
    rows = [each[held_out] for each in inputs]
    predicted = model.predict(rows, batch_size=4 * BATCH_ROWS, verbose=0)[:, 0]
    print("all", *scores(label[held_out], predicted))
    kinds = table["payment_type"].combine_chunks().filter(pa.array(held_out)).dictionary_encode()
    for place, kind in enumerate(kinds.dictionary.to_pylist()):
        of_kind = pc.fill_null(kinds.indices, -1).to_numpy() == place
        print(kind, *scores(label[held_out][of_kind], predicted[of_kind]))
    model.export(folder, verbose=False)


def read(path: str) -> pa.Table:
    """Return the CSV's columns; empty texts are missing."""
    options = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(TEXTS, pa.string()), strings_can_be_null=True
    )
    return pyarrow.csv.read_csv(path, convert_options=options)


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return a column as float64 `[rows]`; NaN where it is missing."""
    return table[name].cast(pa.float64()).to_numpy()


def hash_of_rows(table: pa.Table) -> np.ndarray:
    """Return a hash of each row's content, uint64 `[rows]` below 2^53."""
    found = np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name in TEXTS:
            encoded = column.dictionary_encode()
            words = np.array([hash_of_text(each) for each in encoded.dictionary.to_pylist()] + [1])
            column = words[pc.fill_null(encoded.indices, len(words) - 1).to_numpy()]
        else:
            column = numbers(table, name).view(np.uint64)
        found = (found * np.uint64(1099511628211)) ^ column.astype(np.uint64)
    return found >> np.uint64(11)


def hash_of_text(text: str) -> int:
    """Return FNV-1a of a text, below 2^63."""
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value >> 1


def dense(table: pa.Table, train: np.ndarray) -> np.ndarray:
    """Return the normalised columns, float32 `[rows, 15]`, by statistics of the training rows."""
    amounts = [numbers(table, name) for name in ("fare", "trip_miles", "trip_seconds")]
    columns = [np.log1p(np.maximum(np.nan_to_num(each), 0)) for each in amounts]
    for each in (amounts[0], amounts[1], amounts[2] / 60):
        columns.append(z_score(np.clip(filled(each, train), 0, 100), train))
    places = [numbers(table, name) for name in PLACES]
    columns += [z_score(filled(each, train), train) for each in places]
    columns += [np.isnan(each) for each in places]
    times = numbers(table, "trip_start_timestamp")
    low, high = np.nanmin(times[train]), np.nanmax(times[train])
    columns.append((times - low) / (high - low))
    return np.stack(columns, axis=1).astype(np.float32)


def filled(column: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the column with the mean of the training rows where it is missing."""
    return np.where(np.isnan(column), np.nanmean(column[train]), column)


def z_score(column: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the column with mean 0 and deviation 1 on the training rows."""
    return (column - column[train].mean()) / column[train].std()


def ids(table: pa.Table, train: np.ndarray) -> list[np.ndarray]:
    """Return integer columns `[rows]`: numbers as they are, texts by their frequency."""
    found = []
    for name, size in IDS.items():
        values = numbers(table, name)
        known = (values >= 0) & (values < size)
        found.append(np.where(known, values, size).astype(np.int32))
    for name in ("company", "payment_type"):
        encoded = table[name].combine_chunks().dictionary_encode()
        places = pc.fill_null(encoded.indices, -1).to_numpy()
        counts = np.bincount(places[train & (places >= 0)], minlength=len(encoded.dictionary))
        order = np.argsort(-counts, kind="stable")[:VOCABULARY]
        numbered = np.full(len(counts) + 1, len(order), np.int32)
        numbered[order] = np.arange(len(order))
        numbered[-1] = len(order) + 1  # missing
        found.append(numbered[places])
    return found


def network(width: int, sizes: list[int]) -> keras.Model:
    """Return the compiled layers of the taxi example for dense columns and ids."""
    keras.utils.set_random_seed(0)
    inputs = [keras.Input([width]), *(keras.Input([], dtype="int32") for _ in sizes)]
    embedded = [
        layers.Embedding(size, min(50, round(1.6 * size**0.56)))(each)
        for size, each in zip(sizes, inputs[1:], strict=True)
    ]
    hidden = layers.Concatenate()([inputs[0], *embedded])
    for units in (64, 32):
        hidden = layers.Dense(units, "relu")(hidden)
    model = keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden))
    optimizer = keras.optimizers.AdamW(0.002, weight_decay=1e-4)
    model.compile(optimizer, "binary_crossentropy", steps_per_execution=16, jit_compile=False)
    return model


def scores(label: np.ndarray, predicted: np.ndarray) -> tuple[float, float, int]:
    """Return AUC (NaN for one class), accuracy and rows."""
    both = 0 < label.sum() < len(label)
    auc = roc_auc_score(label, predicted) if both else float("nan")
    return float(auc), float(accuracy_score(label, predicted > 0.5)), len(label)


if __name__ == "__main__":
    main(*sys.argv[1:])
