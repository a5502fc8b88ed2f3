"""What holds for every test: the environment that TensorFlow reads while it is imported."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys

import hypothesis
import pytest

# Before any test module imports TensorFlow: importing tensorflow_transform sets
# TF_USE_LEGACY_KERAS=1 where nothing is set, and `import keras` and tf.keras would then differ.
os.environ["TF_USE_LEGACY_KERAS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Each of many child processes would compile the packages again: a second of processor time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Garbage is collected less often in them too: a fifth of the time of importing TFX.
_FOR_CHILDREN = os.path.join(os.path.dirname(__file__), "support", "child_processes")
_PATHS = [_FOR_CHILDREN, os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))

# A busy machine is slow: no test fails for that.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("patient", **_PATIENT)
# A merge must not depend on the draw: CI takes the same examples each time, a developer new ones.
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, **_PATIENT)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "patient")


# Folders whose tests share what takes long to make.
TOGETHER = ("normalization_validator", "engines")
# Fixtures with a run of Beam behind them: a test that takes one is slow, for it may be the first.
BEAM_RUNS = {"run_transform", "exported"}


def pytest_configure(config: pytest.Config) -> None:
    """Hides GPUs, from child processes too, unless the tests on one are asked for."""
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def pytest_collection_finish() -> None:
    """Spares the garbage collector what is imported: it took a tenth of the tests' time.

    TensorFlow makes many small objects when it traces a graph, and each 700 of them start a look.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def _reflection_remembered():
    """Inspects each of Beam's methods once, as a run of the pipeline does."""
    with contextlib.ExitStack() as stack:
        if "apache_beam" in sys.modules:
            from pipeline.run.beam_reflection import reflection_remembered

            stack.enter_context(reflection_remembered())
        yield


# First, so that pytest-xdist sees the groups: it looks for them in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps tests that share fixtures in one of pytest-xdist's processes, the longest first."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        folder = item.path.parent.name
        fixtures = getattr(item, "fixturenames", ())
        if BEAM_RUNS.intersection(fixtures) and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.slow(1))
        if "taxi" in fixtures:
            group = "taxi"
        else:
            group = folder if folder in TOGETHER else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)

    def length(tests: list[pytest.Item]) -> tuple[bool, bool, float]:
        """Whole pipelines, then folders, then files by the seconds of their slow tests."""
        slow = [item.get_closest_marker("slow") for item in tests]
        seconds = sum((*marker.args, 5.0)[0] for marker in slow if marker)
        folder = tests[0].path.parent.name
        return folder == "e2e", folder in TOGETHER, seconds

    items[:] = itertools.chain.from_iterable(sorted(groups.values(), key=length, reverse=True))
