"""Pictures from files to a model, and token ids without padding, against the same by hand.

The pipeline of `examples/images` runs on random PNG files of 80 x 80 in ten folders, which
Transform resizes to 64 x 64.

- Import: processor seconds of ExampleGen and Transform, against one process that reads, decodes,
  resizes and writes the same bytes to Parquet, without its imports. Ours imports TFX and builds
  graphs, which takes most of its time for 200 pictures (`--quick`), and reads each file twice: to
  split by content, and to write.
- Epoch: seconds of an epoch of the Trainer, its evaluation included (the difference between three
  epochs and one), against `fit` with tf.data on the files: the same model, micro-batches
  (`gradient_accumulation_steps`) and evaluation.
- Memory: the most resident memory while a node runs, ten times the pictures against once, in one
  epoch and in ten: the C library's allocator keeps more with each step of the Trainer.
- Tokens: tokens per second of windows of 512 rows of 8 to 256 tokens, trained by the default
  transformer, with and without `token_features`. Both batches are padded to 256.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _report
from benchmarks._measure import Contender, in_own_process, seconds_per_run
from benchmarks._node_costs import node_costs
from benchmarks._result import Limit, Row, memory_growth

SIDE, SOURCE_SIDE, CLASSES = 64, 80, 10
MICRO_BATCH, GLOBAL_BATCH = 32, 1024
NODES = ("ArrowExampleGen", "StatisticsGen", "Transform", "NormalizationValidator", "Trainer")


def main() -> None:
    """Run the comparisons that are asked for."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--pictures", type=int, default=20_000, help="default: %(default)s")
    parser.add_argument(
        "--only", choices=["import", "epoch", "memory", "tokens"], help="one comparison alone"
    )
    arguments = parser.parse_args()
    count, runs = (200, 1) if arguments.quick else (arguments.pictures, arguments.runs)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.only in (None, "import", "epoch"):
            write_pictures(folder / "pictures", count)
            rows += compare_nodes(folder, count, runs, arguments.only)
        if arguments.only in (None, "memory"):
            rows += compare_memory(folder, 100 if arguments.quick else 5_000)
        if arguments.only in (None, "tokens"):
            rows.append(in_own_process(compare_tokens, runs))
    _report.publish(__file__, rows, quick=arguments.quick)


def compare_nodes(folder: Path, count: int, runs: int, only: str | None) -> list[Row]:
    """Compare the import and an epoch with those written by hand."""
    found: dict[str, list[float]] = {name: [] for name in ("import", "hand", "epoch", "fit")}
    for _ in range(runs):
        one = pipeline_costs(folder / "pictures", epochs=1)
        importing = ("ArrowExampleGen", "Transform")
        found["import"].append(sum(one[node]["cpu_seconds"] for node in importing))
        found["hand"].append(in_own_process(import_by_hand, folder))
        if only != "import":
            three = pipeline_costs(folder / "pictures", epochs=3)
            found["epoch"].append((three["Trainer"]["seconds"] - one["Trainer"]["seconds"]) / 2)
            found["fit"].append(in_own_process(epoch_by_hand, folder / "pictures"))
        print({name: f"{values[-1]:.1f} s" for name, values in found.items() if values}, flush=True)
    hand, fit = "read, decode, resize, write by hand", "tf.data and fit by hand"
    rows = []
    if only != "epoch":
        limit = Limit(1.5)
        rows.append(Row(f"import, {count:,}", hand, found["import"], found["hand"], limit=limit))
    if only != "import":
        limit = Limit(1.11)
        rows.append(Row(f"epoch, {count:,}", fit, found["epoch"], found["fit"], limit=limit))
    return rows


def compare_memory(folder: Path, count: int) -> list[Row]:
    """Compare the peak memory of each node with ten times the pictures."""
    peaks: dict[str, dict[int, list[float]]] = {node: {} for node in NODES}
    for pictures in (count, 10 * count):
        target = folder / f"pictures-{pictures}"
        write_pictures(target, pictures)
        costs = pipeline_costs(target, epochs=10 * count // pictures)
        for node in NODES:
            peaks[node][pictures] = [costs[node]["peak"]]
    return [
        row for node, sizes in peaks.items() for row in memory_growth(f"{node}, {{rows}}", sizes)
    ]


def write_pictures(folder: Path, count: int) -> None:
    """Write smooth random RGB pictures, in ten folders."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(count):
        small = random.integers(0, 256, (10, 10, 3), dtype=np.uint8)
        path = folder / str(number % CLASSES) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small).resize((SOURCE_SIDE, SOURCE_SIDE)).save(path)


def pipeline_costs(pictures: Path, *, epochs: int) -> dict[str, dict[str, float]]:
    """Return what each node of the pipeline takes."""
    count = sum(1 for _ in pictures.glob("*/*.png"))
    with tempfile.TemporaryDirectory() as output:
        return node_costs(
            f"data.path={pictures}",
            f"output.folder={output}",
            "features.groups.0.encode.image.channels=3",
            f"training.epochs={epochs}",
            f"training.global_batch_size={min(GLOBAL_BATCH, count // 2)}",
            f"training.micro_batch_size={MICRO_BATCH}",
            example="images",
        )


def import_by_hand(folder: Path) -> float:
    """Return processor seconds of one pass over the files, without imports."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    started = time.process_time()
    schema = pa.schema([("image", pa.binary()), ("label", pa.string())])
    with pq.ParquetWriter(folder / "by_hand.parquet", schema, compression="zstd") as writer:
        paths = sorted((folder / "pictures").glob("*/*.png"))
        for start in range(0, len(paths), 1000):
            part = paths[start : start + 1000]
            pictures = [Image.open(path).convert("RGB").resize((SIDE, SIDE)) for path in part]
            pixels = [np.asarray(picture).tobytes() for picture in pictures]
            writer.write(pa.table([pixels, [path.parent.name for path in part]], schema=schema))
    return time.process_time() - started


def epoch_by_hand(pictures: Path) -> float:
    """Return seconds of the second epoch of `fit` on the files, with a third held out."""
    import keras

    size = (SIDE, SIDE)
    train, held_out = keras.utils.image_dataset_from_directory(
        pictures,
        batch_size=MICRO_BATCH,
        image_size=size,
        seed=0,
        validation_split=0.33,
        subset="both",
    )
    model = default_model(channels=3)
    steps = GLOBAL_BATCH // MICRO_BATCH
    optimizer = keras.optimizers.AdamW(3e-3, gradient_accumulation_steps=steps)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    model.fit(train.map(as_bytes), validation_data=held_out.map(as_bytes), verbose=0)
    started = time.perf_counter()
    model.fit(train.map(as_bytes), validation_data=held_out.map(as_bytes), verbose=0)
    return time.perf_counter() - started


def as_bytes(pixels: Any, labels: Any) -> tuple[dict[str, Any], Any]:
    """Return pictures as the model takes them."""
    import tensorflow as tf

    return {"image": tf.cast(tf.round(pixels), tf.uint8)}, labels


def default_model(**features: int) -> Any:
    """Return the model of `kind: conv`, or of `kind: transformer` where `features` is empty."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    from shared_core.feature_layout import FeatureLayout, ImageFeature, TokenFeature
    from trainer_module import ModelContext, TrainerConfig
    from trainer_module import default_model as build

    named = {"name": "image", "source": "image", "group": "image"}
    images, tokens = (), ()
    if channels := features.get("channels"):
        shape = {"height": SIDE, "width": SIDE, "channels": channels}
        constants = {"mean": (127.0,) * channels, "variance": (5000.0,) * channels}
        images = (ImageFeature.model_validate({**named, **shape, **constants}),)
    else:
        tokens = (TokenFeature(**named, max_length=256, vocabulary_size=8000),)
    kind = "conv" if images else "transformer"
    return build(
        ModelContext(
            feature_spec={},
            transformed_schema=schema_pb2.Schema(),
            layout=FeatureLayout(columns=(), images=images, tokens=tokens),
            label="label",
            label_kind="multiclass",
            outputs=CLASSES,
            id_sizes={},
            config=TrainerConfig.model_validate({"label": "label", "model": {"kind": kind}}),
        )
    )


def compare_tokens(rounds: int) -> Row:
    """Compare windows with trimmed and with padded token ids."""
    import keras
    import numpy as np
    import tensorflow as tf

    from trainer_module import TrainStep

    random = np.random.default_rng(0)
    # Most texts are short: lengths are log-uniform from 8 to 256.
    lengths = np.exp(random.uniform(np.log(8), np.log(256), 512)).astype(int)
    ids = random.integers(2, 8000, (512, 256)) * (np.arange(256) < lengths[:, None])
    batch = ({"image": tf.constant(ids)}, tf.constant(random.integers(0, CLASSES, 512)))
    contenders = {}
    for name, trimmed in (("trimmed", ("image",)), ("padded", ())):
        keras.utils.set_random_seed(0)
        step = TrainStep(
            default_model(),
            keras.optimizers.Adam(1e-3),
            "sparse_categorical_crossentropy",
            micro_batch_size=MICRO_BATCH,
            token_features=trimmed,
        )
        contenders[name] = Contender(lambda n, step=step: [step(batch) for _ in range(n)])
    seconds = seconds_per_run(contenders, rounds=rounds)
    return Row(
        "transformer, 8 to 256 tokens",
        "padded to 256",
        seconds["trimmed"],
        seconds["padded"],
        limit=Limit(0.5),
    )


if __name__ == "__main__":
    main()
