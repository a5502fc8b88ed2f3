"""Take two real optimizer steps in a child process and measure their memory.

The child (`python -m trainer_module.memory.probe`) reads a pickled `ProbeRequest` from its standard
input and prints its result as JSON in the last line. Being killed for its memory is a result, too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from trainer_module.common.tensors import Tensors
from trainer_module.common.user_values import import_dotted
from trainer_module.devices.memory_budget import ResidentPeak

if TYPE_CHECKING:
    import tensorflow as tf

StepOption: TypeAlias = Any  # an argument of `TrainStep`

# The second step starts with the memory that the first left; later ones take no more.
_STEPS = 2
_WATCH_SECONDS = 0.01
_LOG_LINES = 20
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "OUT_OF_MEMORY", "ALLOC_FAILED")


class ProbeRequest(NamedTuple):
    """One micro-batch size to measure."""

    build: str  # dotted path of a function that returns (model, optimizer, loss)
    arguments: tuple[object, ...]
    # (features, labels) or (features, labels, weights) as NumPy arrays `[rows, ...]`: an example,
    # repeated to any number of rows
    batch: tuple[Tensors, ...]
    devices: tuple[str, ...]  # "CPU:0", ... or "GPU:0", ...: one replica on each
    global_batch_rows: int
    step_options: dict[str, StepOption]  # further arguments of `TrainStep`
    # floatx, dtype_policy and image_data_format of the requesting process
    keras_options: dict[str, object]
    micro_batch_size: int = 1
    # Resident memory at which a child without GPUs stops; None: no limit
    limit_bytes: int | None = None


def measure_in_child(request: ProbeRequest) -> int | None:
    """Return the bytes that a step needs, measured in a child process.

    None: the child stopped at its limit, ran out of memory, or was killed (SIGKILL, which the
    kernel sends when memory is short).

    Raises:
        ValueError: The child rejected the model or another argument; has the child's message.
        RuntimeError: The child failed for another reason than memory.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer_module.memory.probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=child_environment(),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(pickle.dumps(request))
            child.stdin.flush()  # it stays open: the child ends when it is closed
        lines = child.stdout.read().decode(errors="replace").splitlines()
        child.wait()
    finally:
        child.kill()
        child.communicate()
    reason = f"exit status {child.returncode}"
    if child.returncode == 0:
        result = json.loads(lines.pop())
        if "error" not in result:
            return result["bytes"]
        if result["error"] == "ValueError":
            raise ValueError(result["message"])
        reason = f"{result['error']}: {result['message']}"
    elif child.returncode == -signal.SIGKILL or any("std::bad_alloc" in line for line in lines):
        return None
    log = "\n".join(lines[-_LOG_LINES:])
    raise RuntimeError(
        f"the process that measures the memory of micro-batches of {request.micro_batch_size} rows "
        f"failed ({reason}); set micro_batch_size to a number to train without it. Its last "
        f"lines:\n{log}"
    )


def child_environment() -> dict[str, str]:
    """Return an environment in which a child can import the same modules as this process."""
    import tensorflow as tf

    env = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    env["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    env["TF_USE_LEGACY_KERAS"] = "0"
    if threads := tf.config.threading.get_intra_op_parallelism_threads():
        env["TF_NUM_INTRAOP_THREADS"] = str(threads)
    return env


def main() -> NoReturn:
    """Run the request in standard input."""
    # If memory runs out, the kernel kills this process first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        request = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _finish(bytes=_measure(request))
    except Exception as error:
        if _is_out_of_memory(error):
            _finish(bytes=None)
        if not isinstance(error, ValueError):
            traceback.print_exc()
        _finish(error=type(error).__name__, message=str(error))


def _measure(request: ProbeRequest) -> int:
    """Return the peak bytes of model, optimizer, global batch and steps together.

    On GPUs these are the bytes that the allocator gave, otherwise resident memory, from before the
    model is built.
    """
    gc.disable()  # collecting garbage during imports takes a fifth of the time
    build = import_dotted(request.build, field="build")
    import keras
    import tensorflow as tf

    from trainer_module.devices.strategies import create_strategy, grow_gpu_memory
    from trainer_module.step.train_step import TrainStep

    gc.enable()
    for name, value in request.keras_options.items():
        getattr(keras.config, f"set_{name}")(value)
    devices, on_gpus = request.devices, request.devices[0].startswith("GPU")
    gpus = tf.config.list_physical_devices("GPU")
    used = [gpus[int(device.rpartition(":")[2])] for device in devices] if on_gpus else []
    tf.config.set_visible_devices(used, "GPU")
    grow_gpu_memory()
    strategy = create_strategy(
        "one_device" if len(devices) == 1 else "mirrored",
        logical_devices=None if on_gpus else len(devices),
    )
    peak = ResidentPeak()
    if not on_gpus:
        threading.Thread(target=_watch, args=(peak, request.limit_bytes), daemon=True).start()
    with strategy.scope():
        built = build(*request.arguments)
    if not (isinstance(built, tuple) and len(built) == 3 and isinstance(built[0], keras.Model)):
        raise ValueError(
            f"build={request.build} returned {type(built).__name__}: return (model, optimizer, "
            "loss), the model a keras.Model."
        )
    size, options = request.micro_batch_size, request.step_options
    step = TrainStep(*built, micro_batch_size=size, strategy=strategy, **options)
    step.run(iter(_windows(request)), _STEPS)
    if on_gpus:
        return max(tf.config.experimental.get_memory_info(device)["peak"] for device in devices)
    return peak.update()


def _windows(request: ProbeRequest) -> tf.data.Dataset:
    """Return global batches; as in training, one is in use while the next is made."""
    import tensorflow as tf

    def global_batch(rows: tf.Tensor) -> Tensors:
        return tf.nest.map_structure(
            lambda array: tf.gather(array, tf.range(rows) % len(array)), request.batch
        )

    rows = tf.data.Dataset.from_tensors(request.global_batch_rows).repeat(_STEPS + 2)
    return rows.map(global_batch).prefetch(1)


def _watch(peak: ResidentPeak, limit: int | None) -> None:
    """Update the peak, and end the process above the limit, before the machine's memory is full."""
    stopped = threading.Event()
    while not stopped.wait(_WATCH_SECONDS):
        if peak.update() > (limit or sys.maxsize):
            _finish(bytes=None)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # until the parent ends
    os._exit(1)


def _finish(**result: str | int | None) -> NoReturn:
    os.write(1, f"\n{json.dumps(result)}\n".encode())
    os._exit(0)  # at once: TensorFlow's shutdown takes seconds


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return True
    is_of_tensorflow = type(error).__module__.startswith("tensorflow")
    return is_of_tensorflow and any(sign in str(error) for sign in _OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
