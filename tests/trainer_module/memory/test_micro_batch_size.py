"""A micro-batch that fits: found, checked from outside, kept by its run, refused.

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

import keras
import numpy as np
import pytest

from trainer_module import find_micro_batch_size, run_fn
from trainer_module.devices.memory_budget import parse_memory_budget
from trainer_module.memory import micro_batch_size
from trainer_module.memory.micro_batch_size import MemoryBudgetError
from trainer_module.memory.probe import ProbeRequest, child_environment, measure_in_child

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "micro-batch-size.md").read_text()
MODEL, PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BUDGET = "300MiB"
ROW = (np.ones((1, 1), "float32"), np.zeros((1, 1), "float32"))
KERAS_OPTIONS = {
    "floatx": "float32",
    "dtype_policy": keras.DTypePolicy("float32"),
    "image_data_format": "channels_last",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's program, run: what it printed, and its names."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "my_model.py").write_text(MODEL)
    printed, scope = io.StringIO(), {}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.syspath_prepend(str(folder))
        exec(PROGRAM, scope)
        scope["printed"] = printed.getvalue()
        yield scope
    sys.modules.pop("my_model")


@pytest.fixture
def needs(monkeypatch):
    """Steps of known need instead of child processes; the sizes that were measured, in order."""

    def set_needs(need):
        measured = []

        def measure(request):
            measured.append(request.micro_batch_size)
            needed = need(request.micro_batch_size)
            # A child stops at its limit.
            return None if needed > request.limit_bytes else needed

        monkeypatch.setattr(micro_batch_size, "measure_in_child", measure)
        return measured

    return set_needs


EXAMPLE = (np.ones((1, 3), "float32"), np.ones((1, 1), "float32"))


def find(**changed):
    options = {"build": "probe_models.dense", "batch": EXAMPLE, "global_batch_size": 8, **changed}
    return find_micro_batch_size(options.pop("build"), options.pop("batch"), **options)


def test_the_batch_is_halved_until_it_fits(needs):
    """Reference: a step needs 30 MiB and 1 MiB for each row. Halves are rounded up."""
    for global_batch_size, budget, sizes in [
        (600, 1024, [600]),
        (600, 300, [600, 300, 150]),  # 30 + 300 MiB are too many
        (600, 31, [600, 300, 150, 75, 38, 19, 10, 5, 3, 2, 1]),
        (1, 31, [1]),
    ]:
        measured = needs(lambda rows: (30 + rows) << 20)
        found = find(global_batch_size=global_batch_size, memory_budget=f"{budget}MiB")
        assert measured == sizes
        before = sizes[-2] if len(sizes) > 1 else None
        assert found == (sizes[-1], (30 + sizes[-1]) << 20, budget << 20, before)


def test_too_small_budget_reports_the_need_of_one_row(needs):
    needs(lambda rows: int((59.4 + rows) * 2**20))
    with pytest.raises(MemoryBudgetError) as caught:
        find(memory_budget="10MiB")
    (shown,) = re.findall(r"```\n(memory_budget='10MiB' .*)\n```", PAGE)
    assert str(caught.value) == shown
    needs(lambda rows: 1 << 60)
    with pytest.raises(MemoryBudgetError, match=r"1 row was stopped or killed when .* were free"):
        find()


@pytest.mark.slow(40)
def test_the_page_prints_what_it_says(page):
    (printed,) = re.findall(r"```\n(\d+ rows fit[^`]+)```", PAGE)
    assert page["printed"] == printed


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
            step((np.ones((64, 1), "float32"), np.zeros((64, 1), "float32")))
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
        print(1024 * int(peak) - before)
"""


@pytest.mark.slow
def test_found_size_fits_and_the_next_one_does_not(page):
    """Measured on global batches of several, in a separate process, smaller size first."""
    found = page["found"]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUTSIDE), str(found.rows), str(found.next_rows)],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    fitting, next_larger = map(int, done.stdout.split())
    budget = parse_memory_budget(BUDGET).of(0)
    assert found.bytes <= budget
    assert fitting <= budget < next_larger
    # Both measure malloc's habits: seen within 10 % of each other.
    assert fitting == pytest.approx(found.bytes, rel=0.25)


def test_the_end_of_an_allocator_is_no_error(monkeypatch):
    """A step that asks for more than there are addresses raises ResourceExhaustedError."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # its allocator tries again for 30 seconds
    options = ("probe_models.huge", (), ROW, ("CPU:0",), 4, {}, KERAS_OPTIONS)
    assert measure_in_child(ProbeRequest(*options, micro_batch_size=4)) is None


def test_invalid_arguments_are_rejected(needs):
    for changed, message in [
        ({"global_batch_size": 0}, "global_batch_size=0: use at least 1"),
        ({"memory_budget": "much"}, "memory_budget='much': use bytes"),
        ({"build": "probe_models.dens"}, "build='probe_models.dens'.*did you mean 'dense'"),
        ({"build": lambda: None}, "cannot be imported by another process: define it at the top"),
        ({"batch": EXAMPLE[0]}, r"batch: give \(features, labels\)"),
        ({"batch": (EXAMPLE[0], np.ones((2, 1)))}, r"labels have 2 rows .* have 1"),
        ({"batch": (EXAMPLE[0][:0], EXAMPLE[1][:0])}, r"batch has 0 rows"),
    ]:
        measured = needs(lambda rows: 0)
        with pytest.raises(ValueError, match=message):
            find(**changed)
        assert measured == []


def test_run_fn_names_the_setting(fn_args, needs):
    needs(lambda rows: 40 << 20)
    args = fn_args(**QUICK, micro_batch_size="auto", memory_budget="39MiB")
    with pytest.raises(MemoryBudgetError, match=r"^trainer\.memory_budget='39MiB' .* 40\.0 MiB:"):
        run_fn(args)
    assert not Path(args.model_run_dir).exists()


QUICK = {"label": "generous", "global_batch_size": 32, "optimizer": {"learning_rate": 0.01}}


@pytest.mark.slow(25)
def test_run_fn_trains_as_with_that_number(fn_args, needs, tmp_path):
    """Equal to the last bit: the search leaves no trace in weights, shuffling or dropout."""
    settings = {**QUICK, "epochs": 1, "model": {"dropout": 0.2, "hidden_units": [8]}}
    auto = fn_args(**settings, micro_batch_size="auto")
    result = run_fn(auto)
    checkpoints = Path(auto.model_run_dir) / "checkpoints"
    (record,) = checkpoints.glob("micro_batch_size-*.json")
    assert json.loads(record.read_text()) == {"micro_batch_size": 32}

    # A restart takes its own size, with whatever memory is free then.
    measured = needs(lambda rows: rows << 30)
    assert run_fn(auto).metrics == result.metrics
    assert measured == []

    # Another budget is measured again, and the run continues from its checkpoint.
    auto.custom_config["trainer"].update(memory_budget="16GB")
    needs(lambda rows: rows << 29)
    assert run_fn(auto).metrics == result.metrics
    sizes = [json.loads(file.read_text()) for file in checkpoints.glob("micro_batch_size-*.json")]
    assert sorted(size["micro_batch_size"] for size in sizes) == [16, 32]
    assert len([entry for entry in checkpoints.iterdir() if entry.is_dir()]) == 1

    fixed = fn_args(**settings, micro_batch_size=32)
    fixed.model_run_dir = str(tmp_path / "fixed")
    assert run_fn(fixed).metrics == result.metrics
