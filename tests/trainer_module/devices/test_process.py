"""Process settings before TensorFlow is first used, in a new process; and `require_gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from trainer_module import TrainerConfig, prepare_process, run_fn
from trainer_module.devices import strategies
from trainer_module.devices.cluster import Cluster
from trainer_module.devices.process import GpuMissing, check_gpu_visible

# A product keeps every thread busy that it may use; processor time above the clock's says how many.
PROGRAM = """
    import json, sys, time
    from trainer_module import TrainerConfig, prepare_process

    prepare_process(TrainerConfig.model_validate_json(sys.argv[1]))
    import tensorflow as tf
    from trainer_module.memory.probe import child_environment

    def busy():
        x = tf.random.normal([1024, 1024])
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(40):
            y = tf.matmul(x, x)
        y.numpy()
        return (time.process_time() - processor) / (time.perf_counter() - wall)

    print(json.dumps({
        "busy": busy() if "intra_op_threads" in sys.argv[1] else None,
        "cpus": len(tf.config.list_logical_devices("CPU")),
        "probe": child_environment().get("TF_NUM_INTRAOP_THREADS"),
    }))
"""


def prepared(**config):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), json.dumps(config)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_threads_and_devices_are_those_of_the_configuration():
    found = prepared(intra_op_threads=1, logical_devices=2)
    assert found["busy"] < 1.2
    assert found["cpus"] == 2
    assert found["probe"] == "1"  # a memory probe trains as the process that asks


@pytest.mark.parametrize(
    ("config", "wanted"), [({"micro_batch_size": "auto"}, 1), ({"logical_devices": 1}, 0)]
)
def test_gpus_are_shared_where_other_processes_measure_memory(monkeypatch, config, wanted):
    # On a machine without a GPU what is asked of it can only be counted; tests/gpu sees the rest.
    asked = []
    monkeypatch.setattr(strategies, "grow_gpu_memory", lambda: asked.append(True))
    prepare_process(TrainerConfig(**config))
    assert len(asked) == wanted


def test_a_training_that_requires_a_gpu_fails_without_one(fn_args):
    with pytest.raises(GpuMissing) as failed:
        run_fn(fn_args(require_gpu=True))
    message = str(failed.value)
    assert "require_gpu=True, but TensorFlow" in message
    assert "CUDA_VISIBLE_DEVICES='-1'" in message  # as these tests set it
    assert "request no accelerator for the Trainer" in message
    assert "set require_gpu to false" in message


def test_with_parameter_servers_the_workers_need_the_gpu():
    for role, fails in [("chief", False), ("ps", False), ("worker", True)]:
        addresses = {"chief": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}
        cluster = Cluster(addresses, role, 0)
        if fails:
            with pytest.raises(GpuMissing):
                check_gpu_visible(cluster)
        else:
            check_gpu_visible(cluster)
