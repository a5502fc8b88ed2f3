"""How a child process may end, and what the asking side makes of it. None waits for TensorFlow."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time

import pytest

from trainer_module.memory.probe import ProbeRequest, child_environment, measure_in_child


@pytest.fixture
def request_for(tmp_path, monkeypatch):
    """Returns a function that makes a request whose module runs this code when it is imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(code, name="imported_by_child"):
        (tmp_path / f"{name}.py").write_text(code)
        return ProbeRequest(f"{name}.build", (), (), ("CPU:0",), 128, {}, {}, 64)

    return make


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "bytearray(1 << 60)",  # a real MemoryError
        "import os; os.write(2, b\"terminate called: 'std::bad_alloc'\"); os.abort()",
    ],
    ids=["killed", "MemoryError", "bad_alloc"],
)
def test_out_of_memory_means_not_fitting(request_for, code):
    assert measure_in_child(request_for(code)) is None


def test_a_value_error_is_passed_on(request_for):
    with pytest.raises(ValueError, match=r"^layer 'x' is wrong: use another$"):
        measure_in_child(request_for("raise ValueError(\"layer 'x' is wrong: use another\")"))


def test_other_failures_are_reported_with_the_last_lines(request_for):
    for code, reason in [
        ("print('almost there'); raise KeyError('lost')", r"KeyError: 'lost'"),
        ("import os; print('almost there', flush=True); os._exit(3)", "exit status 3"),
    ]:
        with pytest.raises(
            RuntimeError, match=rf"micro-batches of 64 rows failed \({reason}\)"
        ) as error:
            measure_in_child(request_for(code))
        assert "set micro_batch_size to a number" in str(error.value)
        assert "almost there" in str(error.value)


def test_probe_ends_with_its_parent_process(request_for, tmp_path):
    """Closing its standard input is what the end of the asking process does."""
    request = request_for("import time; open(__file__ + '.ran', 'w'); time.sleep(100)")
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer_module.memory.probe"],
        stdin=subprocess.PIPE,
        env=child_environment(),
    )
    try:
        assert child.stdin is not None
        child.stdin.write(pickle.dumps(request))
        child.stdin.flush()
        deadline = time.monotonic() + 30
        while not (tmp_path / "imported_by_child.py.ran").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.stdin.close()
        assert child.wait(timeout=30) == 1
    finally:
        child.kill()
        child.wait()
