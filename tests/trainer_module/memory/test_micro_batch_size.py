"""The largest micro-batch that fits: found, checked from outside, remembered, refused.

The first search is the program of docs/micro-batch-size.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from trainer_module import find_micro_batch_size, run_fn
from trainer_module.devices.memory_budget import parse_memory_budget
from trainer_module.memory import micro_batch_size
from trainer_module.memory.micro_batch_search import MemoryNeed
from trainer_module.memory.micro_batch_size import MemoryBudgetError
from trainer_module.memory.probe import ProbeRequest
from trainer_module.memory.probe_process import _environment, measure_in_child

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "micro-batch-size.md").read_text()
MODEL, PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BUDGET = "300MiB"
KERAS_OPTIONS = {
    "floatx": "float32",
    "dtype_policy": "float32",
    "image_data_format": "channels_last",
}
ROW = (np.ones((1, 1), "float32"), np.zeros((1, 1), "float32"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's program, run: what it printed, and its names."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "my_model.py").write_text(MODEL)
    printed, scope = io.StringIO(), {"cache": str(folder / "cache")}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.syspath_prepend(str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        exec(PROGRAM, scope)
        scope["printed"] = printed.getvalue()
        yield scope
    sys.modules.pop("my_model")


@pytest.fixture
def no_probe(monkeypatch):
    """A child process is an error."""

    class Asked(Exception):
        pass

    def refuse(request):
        raise Asked(request.micro_batch_size)

    monkeypatch.setattr(micro_batch_size, "measure_in_child", refuse)
    return Asked


def find(page, **changed):
    options = {
        "build": page["build"],
        "batch": ROW,
        "global_batch_size": 512,
        "strategy": page["strategy"],
        "memory_budget": BUDGET,
        **changed,
    }
    return find_micro_batch_size(options.pop("build"), options.pop("batch"), **options)


@pytest.mark.slow(40)
def test_the_page_prints_what_it_says(page):
    (printed,) = re.findall(r"```\n(\d+ rows fit[^`]+)```", PAGE)
    assert page["printed"] == printed
    assert page["found"].source == "measured"


# What the kernel counts for a separate process. Not ru_maxrss: that one begins with what
# the process that started it had, here pytest.
OUTSIDE = """
    import re, sys
    from pathlib import Path
    import numpy as np
    import psutil
    from my_model import build
    from trainer_module import TrainStep

    before = psutil.Process().memory_info().rss
    for rows in map(int, sys.argv[1:]):
        model, optimizer, loss = build()
        step = TrainStep(model, optimizer, loss, micro_batch_size=rows)
        for _ in range(2):
            step((np.ones((128, 1), "float32"), np.zeros((128, 1), "float32")))
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
        print(1024 * int(peak) - before)
"""


@pytest.mark.slow
def test_found_size_fits_and_the_next_one_does_not(page):
    """Measured on global batches of several, in a separate process, smaller size first."""
    found = page["found"]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUTSIDE), str(found.rows), str(found.next_rows)],
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    fitting, next_larger = map(int, done.stdout.split())
    budget = parse_memory_budget(BUDGET).of(0)
    assert found.bytes <= budget < found.next_bytes
    assert fitting <= budget < next_larger
    # Both measure malloc's habits: seen within 10 % of each other.
    assert fitting == pytest.approx(found.bytes, rel=0.25)


def probe(**changed):
    options = {
        "build": "my_model.build",
        "arguments": (),
        "batch": ROW,
        "devices": ("CPU:0",),
        "counter": "resident",
        "micro_batch_size": 1,
        "global_batch_rows": 512,
        "window_rows": 512,
        "limit_bytes": None,
        "step_options": {},
        "keras_options": KERAS_OPTIONS,
    }
    return ProbeRequest(**{**options, **changed})


@pytest.fixture
def tensors_given_back(monkeypatch):
    """Child processes give a tensor's memory back at once.

    What malloc keeps for later depends on which thread happens to need what when: up to as much
    again as the tensors take.
    """
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")


@pytest.mark.slow(20)
def test_cpu_devices_share_the_machines_memory(page, tensors_given_back):
    """Two replicas of 16 rows need what one of 32 needs, within 25 %."""
    one = measure_in_child(probe(micro_batch_size=32, window_rows=128))
    two = measure_in_child(probe(devices=("CPU:0", "CPU:1"), micro_batch_size=16, window_rows=128))
    assert one.finished
    assert two.finished
    assert two.bytes == pytest.approx(one.bytes, rel=0.25)


@pytest.fixture
def allocator_of_a_gpu(monkeypatch):
    """Gives child processes the allocator of a GPU, BFC, for the CPU's tensors.

    It counts as it does there, and has an end: at the budget, where a tensor too many raises
    ResourceExhaustedError.
    """
    monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "true")
    monkeypatch.setenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", BUDGET.removesuffix("MiB"))


@pytest.mark.slow(40)
def test_the_allocators_counter_and_its_end_find_the_same_size(
    page, allocator_of_a_gpu, monkeypatch
):
    budget = parse_memory_budget(BUDGET).of(0)
    needs = {}

    def remembered(request):
        return needs.setdefault(request.micro_batch_size, measure_in_child(request))

    monkeypatch.setattr(micro_batch_size, "measure_in_child", remembered)
    choice = micro_batch_size._search(probe(counter="allocator"), budget, free=budget)
    assert (choice.rows, choice.next_rows) == (page["found"].rows, page["found"].next_rows)
    # When the backward pass begins, a row has five tensors of 1 MiB: repeated, and four times tanh.
    assert choice.bytes == pytest.approx(choice.rows * 5 * 2**20, rel=0.01)
    assert needs[512] == MemoryNeed(0, finished=False)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [BUDGET, "260MiB"])
def test_the_cache_answers_while_the_answer_is_the_same(page, no_probe, budget):
    """Another learning rate needs no other memory; 260 MiB lie between the needs, too."""
    again = find(page, memory_budget=budget)
    assert again.source == "cache"
    assert again[:2] == page["found"][:2]
    assert again.budget == parse_memory_budget(budget).of(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"memory_budget": "1GiB"},
        {"memory_budget": "100MiB"},
        {"global_batch_size": 256},
        {"batch": (ROW[0], ROW[1].astype("int64"))},
        {"batch": (*ROW, np.ones(1, "float32"))},
        {"jit_compile": True},
        {"ema_momentum": 0.9},
        {"cache_dir": "elsewhere"},
    ],
    ids=str,
)
def test_changed_request_is_measured_again(page, no_probe, changed, tmp_path):
    if "cache_dir" in changed:
        changed = {"cache_dir": str(tmp_path)}
    with pytest.raises(no_probe, match="1"):
        find(page, **changed)


@pytest.mark.slow
def test_a_run_keeps_its_size(page, no_probe, tmp_path):
    first = find(page, record_dir=str(tmp_path / "run"))
    assert first.source == "cache"
    elsewhere = {"record_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "empty")}
    again = find(page, **elsewhere)
    assert again == first._replace(source="record")
    with pytest.raises(no_probe):  # another budget is another wish
        find(page, **elsewhere, memory_budget="299MiB")


@pytest.mark.slow
def test_too_small_budget_reports_the_need_of_one_row(page, tmp_path, tensors_given_back):
    with pytest.raises(MemoryBudgetError) as caught:
        find(page, memory_budget="10MiB", cache_dir=str(tmp_path))
    (shown,) = re.findall(r"```\n(memory_budget='10MiB' .*)\n```", PAGE)
    number = r"(?<=needs )\d+\.\d"
    assert re.sub(number, "?", str(caught.value)) == re.sub(number, "?", shown)
    (needed,) = re.findall(number, str(caught.value))
    assert 10 < float(needed) < 100
    assert list(tmp_path.iterdir()) == []


EXAMPLE = (np.ones((1, 3), "float32"), np.ones((1, 1), "float32"))


def test_killed_process_counts_as_not_fitting(tmp_path):
    with pytest.raises(MemoryBudgetError, match=r"1 row was stopped or killed when .* were free"):
        find_micro_batch_size(
            "killed_in_child.build", EXAMPLE, global_batch_size=8, cache_dir=str(tmp_path)
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"global_batch_size": 0}, "global_batch_size=0: use at least 1 row"),
        ({"memory_budget": "much"}, "memory_budget='much': use bytes"),
        ({"build": "probe_models.dens"}, "build='probe_models.dens'.*did you mean 'dense'"),
        ({"build": lambda: None}, "cannot be imported by another process: define it at the top"),
        ({"build": "probe_models.model_alone"}, r"model_alone returned Sequential: return \(model"),
        ({"jit_compiled": True}, "'jit_compiled' is not an argument.*did you mean 'jit_compile'"),
        ({"micro_batch_size": 4}, "'micro_batch_size' is not an argument here"),
        ({"batch": EXAMPLE[0]}, r"batch: give \(features, labels\)"),
        ({"batch": (EXAMPLE[0], np.ones((2, 1)))}, r"its tensors have \[1, 2\] rows"),
        ({"batch": (EXAMPLE[0][:0], EXAMPLE[1][:0])}, r"its tensors have \[0\] rows"),
    ],
)
def test_invalid_arguments_are_rejected(no_probe, changed, message):
    options = {"build": "probe_models.dense", "batch": EXAMPLE, "global_batch_size": 8, **changed}
    with pytest.raises(ValueError, match=message):
        find_micro_batch_size(options.pop("build"), options.pop("batch"), **options)


def test_run_fn_names_the_setting(fn_args, tmp_path, monkeypatch):
    monkeypatch.setattr(micro_batch_size, "measure_in_child", lambda request: MemoryNeed(40 << 20))
    args = fn_args(
        **QUICK,
        micro_batch_size="auto",
        memory_budget="39MiB",
        memory_cache_dir=str(tmp_path / "cache"),
    )
    with pytest.raises(MemoryBudgetError, match=r"^trainer\.memory_budget='39MiB' .* 40\.0 MiB:"):
        run_fn(args)
    assert not Path(args.model_run_dir).exists()


QUICK = {"label": "generous", "global_batch_size": 32, "optimizer": {"learning_rate": 0.01}}


@pytest.mark.slow(25)
def test_run_fn_trains_as_with_that_number(fn_args, tmp_path, monkeypatch):
    """Equal to the last bit: the search leaves no trace in weights, shuffling or dropout."""
    settings = {**QUICK, "epochs": 1, "model": {"dropout": 0.2, "hidden_units": [8]}}
    auto = fn_args(**settings, micro_batch_size="auto", memory_cache_dir=str(tmp_path / "cache"))
    result = run_fn(auto)
    found = json.loads((Path(auto.model_run_dir) / "micro_batch_size.json").read_text())
    assert found["source"] == "measured"
    assert found["rows"] == 32
    assert found["next_rows"] is None
    assert 0 < found["bytes"] < found["budget"]

    def refuse(request):
        raise AssertionError("the run's own record should have answered")

    monkeypatch.setattr(micro_batch_size, "measure_in_child", refuse)
    auto.custom_config["trainer"]["memory_cache_dir"] = str(tmp_path / "another")
    assert run_fn(auto).metrics == result.metrics
    found = json.loads((Path(auto.model_run_dir) / "micro_batch_size.json").read_text())
    assert found["source"] == "record"

    # Another budget is looked up again, and the run continues from its checkpoint.
    auto.custom_config["trainer"].update(
        memory_cache_dir=str(tmp_path / "cache"), memory_budget="3GiB"
    )
    assert run_fn(auto).metrics == result.metrics
    found = json.loads((Path(auto.model_run_dir) / "micro_batch_size.json").read_text())
    assert (found["source"], found["budget"]) == ("cache", 3 << 30)
    checkpoints = Path(auto.model_run_dir) / "checkpoints"
    assert len([entry for entry in checkpoints.iterdir() if entry.is_dir()]) == 1

    fixed = fn_args(**settings, micro_batch_size=32)
    fixed.model_run_dir = str(tmp_path / "fixed")
    assert run_fn(fixed).metrics == result.metrics
