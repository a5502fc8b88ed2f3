"""Draw the pictures of docs/normalisation.md and docs/batch-size.md: `python docs/pictures.py`.

One real, skewed column, the fares of TFX's taxi rides, before and after each scaler. The
scalers are `transform`'s own functions and combiners. With `--training-logs`, the TensorBoard
folder of a run with `training.gradient_noise_scale`: the noise scale at each step.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import tensorflow as tf
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from pipeline.data.data_sources import resolve
from transform import compat
from transform.columns.inputs import DenseColumns
from transform.columns.numbers import scaled
from transform.spec.group import Group, ResolvedGroup

TAXI = "package://tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
FOLDER = Path(__file__).parent / "pictures"
CHAINS: dict[str, Mapping[str, Any]] = {
    "z_score": {"scale": "z_score"},
    "z_score, clip: {min: 0, max: 50}": {"scale": "z_score", "clip": {"min": 0, "max": 50}},
    "min_max": {"scale": "min_max"},
    "robust": {"scale": "robust"},
    "robust, clip: {quantiles: [0.01, 0.99]}": {
        "scale": "robust",
        "clip": {"quantiles": [0.01, 0.99]},
    },
    "log1p": {"scale": "log1p"},
    "power": {"scale": "power"},
    "gaussian": {"scale": "gaussian"},
}
BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.hashsalt": "normalisation",  # the same file each time
}


def main() -> None:
    """Writes every picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/pictures")
    parser.add_argument("--training-logs", type=Path, help="such as .../Trainer/model_run/8/train")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    mpl.use("agg")
    fares = read_column("fare")
    outputs = {title: apply_chain(fares, chain) for title, chain in CHAINS.items()}
    with plt.rc_context(STYLE):
        draw_before_and_after(fares, outputs, folder / "scalers.png")
        draw_curves(fares, outputs, folder / "curves.png")
        if arguments.training_logs:
            draw_noise_scale(arguments.training_logs, folder / "noise-scale.png")


def _rounded(number: float) -> float:
    return round(float(number), 2) + 0.0  # not -0.00


def read_column(name: str) -> np.ndarray:
    """A number column of the taxi rides, float32 as in a tf.Example, NaN where missing."""
    with resolve(TAXI, "data").open(newline="", encoding="utf-8") as stream:
        cells = [row[name] for row in csv.DictReader(stream)]
    return np.asarray([float(cell) if cell else np.nan for cell in cells], np.float32)


def apply_chain(values: np.ndarray, chain: Mapping[str, Any]) -> np.ndarray:
    """One group's chain, fitted on all values and applied to them."""
    group = Group.model_validate({"name": "g", "columns": "x", **chain})
    combine = compat.combine

    def analyzed(combiner: Any, *tensors: tf.Tensor, name: str) -> tuple[tf.Tensor, ...]:
        """The analyzer's own combiner, over one batch: all rows."""
        batch = [tensor.numpy() for tensor in tensors]
        accumulator = combiner.add_input(combiner.create_accumulator(), batch)
        outputs = combiner.extract_output(combiner.compact(accumulator))
        infos = combiner.output_tensor_infos()
        return tuple(tf.constant(o, i.dtype) for o, i in zip(outputs, infos, strict=True))

    compat.combine = analyzed
    try:
        columns = DenseColumns({"x": tf.constant(values)}, numbers=["x"], texts=[])
        (block,) = scaled([ResolvedGroup(group, ("x",))], columns)
    finally:
        compat.combine = combine
    return block.values.numpy()[:, 0]


def draw_before_and_after(fares: np.ndarray, outputs: Mapping[str, np.ndarray], file: Path) -> None:
    """Histograms: the column, then each scaler's output, over the whole range of each."""
    panels = {"fare, as it is (dollars)": fares, **outputs}
    figure, axes = plt.subplots(5, 2, figsize=(8.2, 10.6), layout="constrained")
    axes.flat[-1].set_axis_off()
    for axis, (title, values) in zip(axes.flat, panels.items(), strict=False):
        raw = values is fares
        axis.hist(values, bins=80, color=ORANGE if raw else BLUE, log=True)
        axis.set_title(title)
        low, middle, high = np.nanpercentile(values, [0, 50, 100])
        axis.axvline(middle, color=GREY, linewidth=1)
        text = f"min {low:.3g}, median {middle:.3g}, max {high:.3g}"
        if not raw:
            text += f"\nmean {_rounded(values.mean()):.2f}, std {values.std():.2f}"
        axis.text(
            *(0.98, 0.95, text),
            transform=axis.transAxes, ha="right", va="top", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
        axis.set_ylim(0.7, 3e4)
        axis.set_ylabel("rides")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_curves(fares: np.ndarray, outputs: Mapping[str, np.ndarray], file: Path) -> None:
    """What each fare becomes, where 99 % of the fares are."""
    last = float(np.nanpercentile(fares, 99.5))
    order = np.argsort(fares)
    figure, axis = plt.subplots(figsize=(8.2, 3.6), layout="constrained")
    for title in ("z_score", "min_max", "robust", "log1p", "power", "gaussian"):
        inside = order[fares[order] <= last]
        axis.plot(fares[inside], outputs[title][inside], label=title, linewidth=1.6)
    _mark_quartiles(axis, fares)
    axis.axhline(0.0, color=GREY, linewidth=0.8)
    axis.set_xlabel("fare (dollars)")
    axis.set_ylabel("what the model sees")
    axis.legend(frameon=False, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_noise_scale(logs: Path, file: Path) -> None:
    """Draw the gradient noise scale and the loss of a training at each step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logs)).Reload()
    figure, axis = plt.subplots(figsize=(8.2, 3.2), layout="constrained")
    found = {name: events.Scalars(name) for name in ("gradient_noise_scale", "loss")}
    for name, color, on in (
        ("gradient_noise_scale", BLUE, axis),
        ("loss", ORANGE, axis.twinx()),
    ):
        steps = [scalar.step for scalar in found[name]]
        on.plot(steps, [scalar.value for scalar in found[name]], color=color, linewidth=1.6)
        on.set_ylabel(name.replace("_", " "), color=color)
    axis.set_yscale("log")
    axis.set_xlabel("step")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _mark_quartiles(axis: Axes, fares: np.ndarray) -> None:
    lower, upper = np.nanpercentile(fares, [25, 75])
    axis.axvspan(lower, upper, color=ORANGE, alpha=0.12, linewidth=0)
    axis.text(upper, axis.get_ylim()[1], "  half of the rides", va="top", color=ORANGE)


if __name__ == "__main__":
    main()
