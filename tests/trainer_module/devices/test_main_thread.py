"""Which worker keeps the others waiting, and how long it may."""

from __future__ import annotations

import tensorflow as tf

from trainer_module.devices import multi_worker as graph_marks
from trainer_module.devices.main_thread import (
    Activity,
    LateWorkers,
    current_activity,
    doing,
    main_thread_stack,
)
from trainer_module.devices.worker_group import WorkerGroup

TIMEOUT = 30.0
WAITS = Activity("waiting at 'step 3'", waits=True)
CALLBACK = Activity("in callback Hangs.on_loop")
EVALUATION = Activity("evaluating", limit="long")
SEARCH = Activity("searching", limit="none")


def found(*heard: tuple[float, int, Activity], at: float):
    """Return (number, reason) at a time, after what was heard at earlier times, by worker."""
    late = LateWorkers(TIMEOUT)
    for when, number, activity in heard:
        late.hear(number, activity, when)
    return late.find(at, lambda number: f"worker {number}")


def test_the_worker_that_the_others_wait_for_is_late():
    """Also the chief; not before the limit, and not the one that waits."""
    for hung in [0, 1]:
        heard = (0.0, hung, CALLBACK), (0.0, 1 - hung, WAITS), (0.0, 2, WAITS)
        assert found(*heard, at=TIMEOUT) is None
        number, reason = found(*heard, at=TIMEOUT + 1)
        assert number == hung
        assert "in callback Hangs.on_loop for 31 s" in reason
        assert f"while worker {1 - hung} is waiting at 'step 3'" in reason
        assert "worker_timeout_seconds=30" in reason


def test_the_limit_is_that_of_the_activity_and_what_the_others_needed():
    """The worker that waits began when the other did, and needed 50 seconds itself."""
    for activity, limit in [(CALLBACK, 30.0), (EVALUATION, 300.0), (SEARCH, 1e9)]:
        heard = (0.0, 0, activity), (0.0, 1, activity), (50.0, 0, WAITS)
        assert found(*heard, at=50 + limit + 50) is None
        assert (found(*heard, at=50 + limit + 51) is None) == (activity is SEARCH)


def test_nobody_is_late_who_progresses_has_ended_or_is_not_waited_for():
    assert found((0.0, 0, CALLBACK), (0.0, 1, CALLBACK), at=1e6) is None
    heard = [(0.0, 0, WAITS), *((float(s), 1, CALLBACK._replace(place=s)) for s in range(100))]
    assert found(*heard, at=99 + TIMEOUT) is None
    assert found(*heard, at=100 + TIMEOUT)[0] == 1
    late = LateWorkers(1.0)
    late.hear(0, WAITS, 0.0)
    late.hear(1, EVALUATION, 0.0)
    assert late.find(120.0, str) is None  # long limits are at least two minutes
    assert late.find(121.0, str)[0] == 1
    late.forget(1)
    assert late.find(100.0, str) is None


def test_workers_that_all_wait_are_named_together():
    heard = (0.0, 0, WAITS), (10.0, 1, WAITS._replace(what="waiting in the sum of step 4"))
    assert found(*heard, at=310.0) is None
    _, reason = found(*heard, at=311.0)
    assert "worker 0 is waiting at 'step 3', worker 1 is waiting in the sum of step 4" in reason


def test_a_main_thread_shows_its_innermost_activity():
    """And it changes with each, so that two equal ones in a row are progress."""
    outside = current_activity()
    assert (outside.what, outside.limit) == ("in code outside TrainingLoop.fit", "long")
    places = []
    for _ in range(2):
        with doing("evaluating", limit="long"):
            with doing(lambda: CALLBACK):
                assert current_activity().what == CALLBACK.what
                places.append(current_activity().place)
            assert current_activity().what == EVALUATION.what
    assert places[0] != places[1]

    def fails() -> Activity:
        raise RuntimeError("TensorFlow ends")

    with doing(fails):
        assert current_activity().what == "in a call of TensorFlow"
    assert "test_a_main_thread_shows" in main_thread_stack()


class _Two(WorkerGroup):
    size = 2


def test_marks_show_where_a_graph_is(monkeypatch):
    """A worker waits once all of its replicas do; also at the end of an evaluation."""
    replicas = 3
    seen = []
    monkeypatch.setattr(graph_marks, "worker_group", lambda strategy: _Two())
    monkeypatch.setattr(graph_marks, "local_replicas", lambda strategy: replicas)
    marks = graph_marks.GraphMarks(tf.distribute.get_strategy())

    def look():
        activity = current_activity()
        seen.append((activity.what, activity.limit, activity.waits))

    for first in (5, 7):
        with marks.watched("step", first=lambda first=first: first):
            look()
            for _ in range(2):
                marks.reading()
                look()
                marks.computing(tf.zeros([2]))
                for _ in range(replicas):
                    look()
                    marks.summing([tf.zeros([2]), None])
                look()
            marks.reading()
            marks.summing(tf.zeros([2]), replicas=replicas)
            look()
    long = {("reading", 5), ("computing", 5)}  # the first ones of all
    expected = []
    for first in (5, 7):
        expected.append((f"tracing step {first}", "long", False))
        for step in (first, first + 1):
            for what, does in (("reading the rows of", "reading"), ("computing", "computing")):
                limit = "long" if (does, step) in long else "short"
                times = replicas if does == "computing" else 1
                expected += [(f"{what} step {step}", limit, False)] * times
            expected.append((f"waiting in the sum of step {step}", "short", True))
        expected.append((f"waiting in the sum of step {first + 1}", "short", True))
    assert seen == expected
