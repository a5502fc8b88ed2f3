"""Take two real optimizer steps in a child process and measure their memory.

    python -m trainer_module.memory.probe FOLDER

The process reads `FOLDER/request` (a pickled `ProbeRequest`) and writes `FOLDER/outcome.json`.
Being killed for its memory is a result, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import pickle
import select
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from trainer_module.common.names import import_dotted
from trainer_module.common.tensors import Tensors
from trainer_module.devices.resident_memory import memory_status, reset_peak

if TYPE_CHECKING:
    import tensorflow as tf

StepOption: TypeAlias = Any  # an argument of `TrainStep`

# The second step starts with the memory that the first left; later ones take no more.
_STEPS = 2
_WATCH_SECONDS = 0.01


@dataclasses.dataclass(frozen=True)
class ProbeRequest:
    """One micro-batch size to measure.

    Attributes:
        build: Dotted path of a function that returns (model, optimizer, loss).
        arguments: Its arguments.
        batch: (features, labels) or (features, labels, weights) as NumPy arrays `[rows, ...]` with
            at least one row: an example, repeated to any number of rows.
        devices: "CPU:0", ... or "GPU:0", ...: one replica on each.
        counter: What to count: "allocator" for TensorFlow's allocator of the device that needs most
            (GPUs), or "resident" for the memory of the process (CPU devices, which share the
            machine's).
        micro_batch_size: Rows.
        global_batch_rows: Rows of the global batch, all in memory as in training.
        window_rows: Number of those rows that the steps use.
        limit_bytes: Resident memory at which to stop, if `counter` is "resident"; None: no limit.
        step_options: Further arguments of `TrainStep`.
        keras_options: floatx, dtype_policy and image_data_format of the requesting process.
    """

    build: str
    arguments: tuple[object, ...]
    batch: tuple[Tensors, ...]
    devices: tuple[str, ...]
    counter: Literal["allocator", "resident"]
    micro_batch_size: int
    global_batch_rows: int
    window_rows: int
    limit_bytes: int | None
    step_options: dict[str, StepOption]
    keras_options: dict[str, str]


def measure(request: ProbeRequest, outcome: Path) -> int:
    """Return the peak bytes of model, optimizer, global batch and steps together.

    The allocator counts its tensors. Resident memory is counted from before the model is built,
    without files mapped into memory (TensorFlow's own code).
    """
    gc.disable()  # collecting garbage during imports takes a fifth of the time
    function = import_dotted(request.build, field="build")
    import keras
    import tensorflow as tf

    from trainer_module.step.train_step import TrainStep

    gc.enable()
    keras.config.set_floatx(request.keras_options["floatx"])
    keras.config.set_dtype_policy(request.keras_options["dtype_policy"])
    keras.config.set_image_data_format(request.keras_options["image_data_format"])
    strategy = _strategy(request.devices)
    by_allocator = request.counter == "allocator"
    peak = _Peak()
    if not by_allocator:
        _watch(peak, request.limit_bytes, outcome)
    with strategy.scope():
        model, optimizer, loss = function(*request.arguments)
    step = TrainStep(
        model,
        optimizer,
        loss,
        micro_batch_size=request.micro_batch_size,
        strategy=strategy,
        **request.step_options,
    )
    step.run(iter(_windows(request)), _STEPS)
    if by_allocator:
        info = tf.config.experimental.get_memory_info
        return max(info(device)["peak"] for device in request.devices)
    return peak.update()


def _strategy(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    import tensorflow as tf

    from trainer_module.devices.strategies import create_strategy, grow_gpu_memory

    name = "one_device" if len(devices) == 1 else "mirrored"
    if devices[0].startswith("CPU"):
        tf.config.set_visible_devices([], "GPU")
        return create_strategy(name, logical_devices=len(devices))
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices([gpus[int(d.rpartition(":")[2])] for d in devices], "GPU")
    grow_gpu_memory()
    return create_strategy(name)


def _windows(request: ProbeRequest) -> tf.data.Dataset:
    """Return global batches; as in training, one is in use while the next is made."""
    import tensorflow as tf

    features, labels, *weights = request.batch
    # Weights of 0 would skip the optimizer.
    example = (features, labels, *[tf.ones_like(weight) for weight in weights])
    counts = (tf.constant(request.global_batch_rows), tf.constant(request.window_rows))

    def global_batch(rows: Tensors, window_rows: Tensors) -> Tensors:
        def repeated(values: Tensors) -> Tensors:
            values = tf.convert_to_tensor(values)
            return tf.gather(values, tf.range(rows) % tf.shape(values)[0])[:window_rows]

        return tf.nest.map_structure(repeated, example)

    batches = tf.data.Dataset.from_tensors(counts).repeat(_STEPS + 2)
    return batches.map(global_batch).prefetch(1)


class _Peak:
    """Peak of resident memory above that at creation, without mapped files.

    The kernel's peak includes mapped files, which it may page out meanwhile, so their size at the
    end does not give their part of the peak. `update` therefore reads and resets the peak often.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        reset_peak()
        status = memory_status()
        self._files = status.get("RssFile", 0)
        self._before = status["VmRSS"] - self._files
        self._bytes = 0

    def update(self) -> int:
        """Return the peak in bytes."""
        with self._lock:
            status = memory_status()
            reset_peak()
            files = status.get("RssFile", 0)
            held = status["VmHWM"] - max(files, self._files)
            self._files = files
            self._bytes = max(self._bytes, held - self._before)
            return self._bytes


def _watch(peak: _Peak, limit: int | None, outcome: Path) -> None:
    """Update the peak, and end the process above the limit, before the machine's memory is full."""

    def watch() -> None:
        stopped = threading.Event()
        while not stopped.wait(_WATCH_SECONDS):
            held = peak.update()
            if limit is not None and held > limit:
                _finish(outcome, {"bytes": held, "finished": False})

    threading.Thread(target=watch, daemon=True).start()


def _end_with_parent() -> None:
    """End the process with its parent: stdin closes when the parent ends."""

    def watch() -> None:
        select.select([sys.stdin], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _finish(outcome: Path, answer: dict[str, str | int | bool]) -> NoReturn:
    partial = outcome.with_suffix(f".{threading.get_ident()}")
    partial.write_text(json.dumps(answer))
    os.replace(partial, outcome)
    os._exit(0)  # at once: TensorFlow's shutdown takes seconds


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return True
    signs = ("RESOURCE_EXHAUSTED", "out of memory", "OUT_OF_MEMORY", "ALLOC_FAILED")
    return type(error).__module__.startswith("tensorflow") and any(s in str(error) for s in signs)


def main(folder: Path) -> NoReturn:
    """Run the request in a folder."""
    _end_with_parent()
    outcome = folder / "outcome.json"
    # If memory runs out, the kernel kills this process first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        request = pickle.loads((folder / "request").read_bytes())
        _finish(outcome, {"bytes": measure(request, outcome), "finished": True})
    except Exception as error:
        if _is_out_of_memory(error):
            _finish(outcome, {"bytes": 0, "finished": False})
        if not isinstance(error, ValueError):
            traceback.print_exc()
        _finish(outcome, {"error": type(error).__name__, "message": str(error)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
