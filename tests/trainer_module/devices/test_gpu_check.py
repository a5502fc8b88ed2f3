"""`require_gpu`: the error, the likely cause in it, and which tasks of a job need a GPU."""

from __future__ import annotations

import pytest

from trainer_module import TrainerConfig, run_fn
from trainer_module.devices import gpu_check
from trainer_module.devices.cluster import Cluster
from trainer_module.devices.gpu_check import GpuMissing, check_gpu_visible


def test_a_training_that_requires_a_gpu_fails_without_one(fn_args):
    with pytest.raises(GpuMissing) as failed:
        run_fn(fn_args(require_gpu=True))
    message = str(failed.value)
    assert "require_gpu=True, but TensorFlow" in message
    assert "CUDA_VISIBLE_DEVICES='-1' hides all GPUs" in message  # as these tests set it
    assert "remove `accelerator` from the Trainer's resources" in message
    assert "set require_gpu to false" in message


@pytest.mark.parametrize(
    ("loaded", "wheel", "cause"),
    [
        (set(), False, "python -m pipeline image build --cuda"),
        ({"libcuda.so.1"}, False, "python -m pipeline image build --cuda"),
        (set(), True, "NVIDIA driver (libcuda.so.1) is missing"),
        ({"libcudart.so.12"}, False, "NVIDIA driver (libcuda.so.1) is missing"),
        ({"libcuda.so.1", "libcudart.so.12"}, False, "nvidia-smi"),
    ],
)
def test_the_error_names_what_is_missing(loaded, wheel, cause, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(gpu_check, "_loads", lambda library: library in loaded)
    monkeypatch.setattr(gpu_check, "_has_wheel", lambda: wheel)
    with pytest.raises(GpuMissing) as failed:
        check_gpu_visible()
    assert cause in str(failed.value)
    assert str(failed.value).endswith(
        "To train on the CPU, set require_gpu to false, and request no accelerator for the Trainer."
    )


def test_libraries_are_found_by_the_linker():
    assert gpu_check._loads("libc.so.6")
    assert not gpu_check._loads("libnothing.so.12")


@pytest.mark.parametrize(
    ("role", "fails"), [("chief", False), ("ps", False), ("worker", True)], ids=str
)
def test_with_parameter_servers_the_workers_need_the_gpu(role, fails):
    addresses = {"chief": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}
    cluster = Cluster(addresses, role, 0)
    if fails:
        with pytest.raises(GpuMissing):
            check_gpu_visible(cluster)
    else:
        check_gpu_visible(cluster)


def test_the_setting_does_not_affect_the_result():
    role = TrainerConfig.roles()["require_gpu"]
    assert not role.affects_result
    assert role.untunable
    assert TrainerConfig().require_gpu is None
