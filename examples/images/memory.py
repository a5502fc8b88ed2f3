"""Compare one full batch of 1,024 pictures with micro-batches of 32: memory, losses, accuracy.

    python examples/images/memory.py

Each training runs in a separate process: the default convolutional model, Adam, and the digits
that `write_data.py` writes. Memory is the most resident memory of a step above what the process had
before it. Both trainings see the same batches, so that their losses should be the same.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "output" / "digits" / "pictures"
GLOBAL_BATCH, MICRO_BATCH = 1024, 32


class Training(NamedTuple):
    """What a training took and found."""

    peak: int  # bytes
    losses: list[float]  # of each step


def main() -> None:
    """Train twice, print both, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    arguments = parser.parse_args()
    ours, full = (train_in_process(rows, arguments.steps) for rows in (MICRO_BATCH, GLOBAL_BATCH))
    for rows, training in ((GLOBAL_BATCH, full), (MICRO_BATCH, ours)):
        losses = " ".join(f"{loss:.4f}" for loss in training.losses)
        print(f"{rows:5,} rows at a time: {training.peak / 1e6:6,.0f} MB; losses {losses}")
    pairs = zip(ours.losses, full.losses, strict=True)
    difference = max(abs(a - b) for a, b in pairs)
    print(
        f"memory {ours.peak / full.peak:.3f} of the full batch; losses differ by {difference:.1e}"
    )
    if arguments.picture is not None:
        draw(ours, full, arguments.picture)


def train_in_process(micro_batch_rows: int, steps: int) -> Training:
    """Return what `train` returns, from a new process: peak memory is that of a process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(train, micro_batch_rows, steps).result()


def train(micro_batch_rows: int, steps: int) -> Training:
    """Take steps on the first 1,024 pictures of a fixed random order."""
    import keras
    import numpy as np
    import tensorflow as tf

    from trainer_module import TrainStep

    paths = np.array(sorted(FOLDER.glob("*/*.png")))
    if not len(paths):
        raise SystemExit(f"there are no pictures in {FOLDER}: run write_data.py first")
    chosen = paths[np.random.default_rng(0).permutation(len(paths))[:GLOBAL_BATCH]]
    pixels = tf.stack([tf.io.decode_png(tf.io.read_file(str(path)), 1) for path in chosen])
    labels = tf.constant([int(path.parent.name) for path in chosen])
    keras.utils.set_random_seed(0)
    model = build_model()
    step = TrainStep(
        model,
        keras.optimizers.Adam(1e-3),
        "sparse_categorical_crossentropy",
        micro_batch_size=micro_batch_rows,
    )
    # Trace, and fill the pools of memory that each process needs once: 33 rows are two passes.
    step((pixels[: MICRO_BATCH + 1], labels[: MICRO_BATCH + 1]))
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before = _resident_peak()
    losses = [float(step((pixels, labels)).loss) for _ in range(steps)]
    return Training(_resident_peak() - before, losses)


def build_model():  # -> keras.Model
    """Return the model that `model: {kind: conv}` of the YAML builds."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    from shared_core.feature_layout import FeatureLayout, ImageFeature
    from trainer_module import ModelContext, TrainerConfig, default_model

    image = ImageFeature(
        name="image",
        source="image",
        group="picture",
        height=64,
        width=64,
        channels=1,
        mean=(77.8,),
        variance=(7000.0,),
    )
    return default_model(
        ModelContext(
            feature_spec={},
            transformed_schema=schema_pb2.Schema(),
            layout=FeatureLayout(columns=(), images=(image,)),
            label="label",
            label_kind="multiclass",
            outputs=10,
            id_sizes={},
            config=TrainerConfig.model_validate({"label": "label", "model": {"kind": "conv"}}),
        )
    )


def draw(ours: Training, full: Training, path: Path) -> None:
    """Write a picture: memory on the left, losses on the right."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "digits"  # the same file for the same numbers
    from matplotlib import pyplot

    figure, (bars, curves) = pyplot.subplots(1, 2, figsize=(9, 3), layout="constrained")
    names = [f"one batch of {GLOBAL_BATCH:,}", f"micro-batches of {MICRO_BATCH}"]
    shown = bars.barh(names, [full.peak / 1e6, ours.peak / 1e6], color=["#9aa5b1", "#2f6fde"])
    bars.bar_label(shown, fmt="{:,.0f} MB", padding=3)
    bars.set_title("memory of one step")
    bars.margins(x=0.25)
    curves.plot(full.losses, color="#9aa5b1", linewidth=6, label=names[0])
    curves.plot(ours.losses, color="#2f6fde", label=names[1])
    curves.set_title("loss by step")
    curves.legend(frameon=False)
    for axes in (bars, curves):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _resident_peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
