"""What TF_CONFIG may say, and what of it is refused."""

from __future__ import annotations

import json

import pytest

from trainer_module.devices.cluster import cluster_of_environment

TWO = ["a:1", "b:2"]


def read(cluster, task="worker", index=0):
    text = json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})
    return cluster_of_environment({"TF_CONFIG": text})


def test_an_invalid_cluster_is_rejected():
    for cluster, task, index, message in [
        ({"worker": ["a:1", "a:1"]}, "worker", 0, r"'a:1' is there 2 times"),
        ({"worker": TWO}, "worker", 2, r"task\.index=2, and cluster\.worker has 2: .* 0 to 1"),
        ({"worker": TWO}, "worker", -1, r"task\.index=-1"),
        ({"worker": TWO}, "worker", 1.5, r"task\.index=1\.5 is not a whole number"),
        ({"worker": TWO}, "worker", "one", r"invalid literal for int"),
        ({"worker": TWO}, "wroker", 0, r"task\.type='wroker' .* did you mean 'worker'\?"),
        ({"worker": TWO}, "chief", 0, r"task\.type='chief' is not in the cluster"),
        ({"wroker": TWO}, "wroker", 0, r"cluster\.wroker is not a role: did you mean 'worker'\?"),
        ({"worker": TWO, "chief": ["c:3", "d:4"]}, "chief", 0, r"cluster\.chief has several"),
        ({"worker": "a:1,b:2"}, "worker", 0, r"'a:1,b:2' is not a list of addresses"),
        ({"worker": ["a:1", 2]}, "worker", 0, r"is not a list of addresses"),
        ({"worker": ["a:1", "b"]}, "worker", 0, r"'b' is not host:port"),
        ({"worker": ["a:1", "b:65536"]}, "worker", 0, r"'b:65536' is not host:port"),
        (["a:1", "b:2"], "worker", 0, r"AttributeError"),
    ]:
        with pytest.raises(ValueError, match=rf"is not a cluster and a task .*{message}"):
            read(cluster, task, index)


def test_invalid_text_is_rejected():
    for text in ["{", "[1]", '"worker"', '{"cluster": {"worker": ["a:1"]}}', "\0"]:
        with pytest.raises(
            ValueError, match=r"is not a cluster and a task .* or unset it to train"
        ):
            cluster_of_environment({"TF_CONFIG": text})


def test_no_cluster_is_one_process():
    for text in ["", "{}", '{"cluster": {}}', '{"task": {"type": "worker"}}']:
        assert cluster_of_environment({"TF_CONFIG": text}) is None


def test_tf_config_of_platforms_is_read():
    vertex = read({"chief": ["x-0:2222"], "worker": ["x-1:2222", "x-2:2222"]}, "worker", "1")
    assert (vertex.number, vertex.workers[2]) == (2, ("worker", 1, "x-2:2222"))
    by_index = read({"worker": {"1": "b:2", "0": "[::1]:1"}})
    assert by_index.addresses == {"worker": ("[::1]:1", "b:2")}
    eleven = read({"worker": {str(n): f"h:{n + 1}" for n in reversed(range(11))}})
    assert eleven.addresses["worker"] == tuple(f"h:{n + 1}" for n in range(11))
    assert read({"worker": TWO}, "evaluator").role == "evaluator"
    assert read({"worker": TWO, "evaluator": ["c:3"]}, "evaluator").role == "evaluator"
