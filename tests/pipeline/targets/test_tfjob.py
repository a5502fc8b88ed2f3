"""Several workers on Kubeflow: the manifest, and the launcher against an API of Kubernetes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import jsonschema
import kubernetes
import pytest
from compiled_taxi import GOLDEN, compiled, documents_of
from kubernetes_server import JOBS, LAUNCHER, NAMESPACE, SCHEMA, KubernetesServer
from loopback import Answer

from pipeline.run.process import terminated_by_signal
from pipeline.targets import tfjob_launcher
from pipeline.targets.executor_input import INPUTS_SPEC, INVOCATION, OUTPUTS_SPEC
from pipeline.targets.tfjob import MANIFEST, _pod_template, _tfjob_manifest
from pipeline.targets.tfjob_client import Cluster, JobClient, JobError, watch_launcher
from pipeline.targets.tfjob_launcher import _Node, _run_on_cluster
from pipeline.targets.vertex import worker_pools
from trainer_module import TrainerConfig

MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}


def test_the_trainer_becomes_a_launcher_of_workers_with_the_profiles_settings():
    text = compiled(
        "kubeflow",
        "training.workers=3",
        ".environment={AWS_ENDPOINT_URL: 'http://minio:9000'}",
        ".secrets={minio: {accesskey: AWS_ACCESS_KEY_ID}}",
        ".resources.Trainer={cpu: 4, accelerator: nvidia.com/gpu, timeout_minutes: 90}",
    )
    spec, platform = documents_of(text)
    launcher = spec["deploymentSpec"]["executors"]["Trainer_executor"]["container"]
    assert launcher["command"][-1] == "pipeline.targets.tfjob_launcher"
    assert launcher["resources"] == {"cpuLimit": 1.0, "memoryLimit": 2.0}
    assert "--executor_class_path" in launcher["args"]
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert pods["Trainer_executor"]["secretAsEnv"]
    manifest = json.loads(launcher["args"][launcher["args"].index(MANIFEST) + 1])
    jsonschema.validate(manifest, SCHEMA)
    assert manifest["spec"]["runPolicy"]["activeDeadlineSeconds"] == 5400
    replicas = manifest["spec"]["tfReplicaSpecs"]
    assert {role: each["replicas"] for role, each in replicas.items()} == {"Chief": 1, "Worker": 2}
    assert replicas["Chief"]["template"] == replicas["Worker"]["template"]
    (container,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/tfx-largebatch:1.0"
    names = {each["name"] for each in container["env"]}
    assert {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"} < names
    training = TrainerConfig(workers=2, strategy="parameter_server", global_batch_size=16)
    servers = _tfjob_manifest("taxi", {"image": "x:1"}, {}, worker_pools(training))
    replicas = servers["spec"]["tfReplicaSpecs"].items()
    assert {role: r["replicas"] for role, r in replicas} == {"Chief": 1, "Worker": 2, "PS": 1}
    # Pods that start minutes apart wait for each other.
    assert "900" in json.dumps(spec["root"]["dag"]["tasks"]["Trainer"])


# Settings that the golden file lacks, as kfp-kubernetes writes them.
VARIABLES = {
    "secretAsEnv": [{"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "K"}]}],
    "configMapAsEnv": [
        {"configMapName": "m", "keyToEnv": [{"configMapKey": "k", "envVar": "M"}]}
        | {"optional": True}
    ],
}


def test_every_setting_of_a_nodes_pod_is_one_of_the_workers_pods():
    spec, document = documents_of((GOLDEN / "kfp-kubernetes.yaml").read_text())
    ((label, config),) = document["platforms"]["kubernetes"]["deploymentSpec"]["executors"].items()
    container = spec["deploymentSpec"]["executors"][label]["container"]
    manifest = _tfjob_manifest("taxi", container, {**config, **VARIABLES}, (1, 1))
    jsonschema.validate(manifest, SCHEMA)
    pod = manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    mesh = {"sidecar.istio.io/inject": "false"}
    assert pod["metadata"] == {"labels": mesh | {"team": "taxi"}, "annotations": mesh}
    spec, (main,) = pod["spec"], pod["spec"]["containers"]
    limits = {"cpu": "2", "memory": "4.294967296G", "nvidia.com/gpu": "1"}
    assert main["resources"]["limits"] == limits
    variables = {each.pop("name"): each for each in main["env"]}
    assert variables == {
        "PYTHONUNBUFFERED": {"value": "1"},
        "NODE": {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        "POD": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        "K": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        "M": {"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}}},
    }
    assert main["imagePullPolicy"] == "Always"
    assert main["volumeMounts"] == [
        {"name": "tfx-largebatch-shm", "mountPath": "/dev/shm"},
        {"name": "tfx-largebatch-scratch", "mountPath": "/s3"},
        {"name": "vocabularies", "mountPath": "/mnt/words", "subPath": "en"},
        {"name": "cache", "mountPath": "/mnt/cache"},
    ]
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1536Mi"}},
        "storageClassName": "fast",
    }
    assert spec["volumes"] == [
        {"name": "tfx-largebatch-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        {"name": "tfx-largebatch-scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        {"name": "vocabularies", "persistentVolumeClaim": {"claimName": "vocabularies"}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
    ]
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["tolerations"][1]["tolerationSeconds"] == 60
    assert len(spec["affinity"]["nodeAffinity"]) == 2
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]
    with pytest.raises(ValueError, match=r"initContainers: a setting .* do not get; known are"):
        _pod_template(container, {"initContainers": []})


@pytest.fixture
def server():
    server = KubernetesServer()
    with server.serving():
        yield server


def cluster_of(server):
    host = kubernetes.client.Configuration(host=server.url)
    host.retries = False
    return Cluster(kubernetes.client.ApiClient(host), NAMESPACE, LAUNCHER)


@pytest.fixture
def node(tmp_path):
    """A node of one chief and one worker."""
    manifest = _tfjob_manifest("taxi", {"image": "x:1"}, {}, (1, 1))
    return _Node(manifest, ["$(HOME)"], str(tmp_path / "result.json"), tmp_path / "output.json")


def test_a_job_is_created_followed_and_deleted(server, node):
    lines = []
    server.failures[f"GET {JOBS}/"] = Answer({"message": "restarting"}, 503)
    threading.Timer(0.5, server.failures.clear).start()
    client = JobClient(cluster_of(server), interval=0.1, say=lines.append)
    assert _run_on_cluster(node, client) == 0
    (manifest,) = server.created
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-of-launcher"
    pod = manifest["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    assert pod["serviceAccountName"] == "default-editor"
    # Kubernetes replaces $(NAME), and $$ by $.
    assert pod["containers"][0]["args"] == ["--result", node.result, "$$(HOME)"]
    for name in ("chief-0", "worker-0"):
        said = [line.removeprefix(f"[{name}] ") for line in lines if line.startswith(f"[{name}]")]
        assert said == [
            *("Pending, ContainerCreating", "line 0", "line 1", "Running", "line 2"),
            "ended with code 0, Completed",
        ]
    (delete,) = server.got(f"DELETE {JOBS}/")
    assert delete.query["propagationPolicy"] == "Foreground"
    assert not server.jobs


def test_the_worker_that_failed_first_is_named_with_its_code(server, node):
    """The chief ends with 75, as training does when a worker is lost."""
    server.codes = {"chief-0": 75, "worker-0": 3}
    lines = []
    client = JobClient(cluster_of(server), interval=0.1, say=lines.append)
    assert _run_on_cluster(node, client) == 3
    assert lines[-1].endswith("failed: worker-0 ended with code 3")
    assert not server.jobs


def test_sigterm_deletes_the_job(server, node):
    server.codes = {}

    def end_when_it_runs():
        if server.looks < 5:
            threading.Timer(0.1, end_when_it_runs).start()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    end_when_it_runs()
    with pytest.raises(SystemExit) as caught, terminated_by_signal():
        _run_on_cluster(node, JobClient(cluster_of(server), interval=0.1))
    assert caught.value.code == 143
    assert not server.jobs


def test_a_job_of_an_earlier_attempt_is_deleted_first(server, node):
    """It would write to the same checkpoints."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "uid-of-another"}
    server.add(node.complete_manifest(owner, None))
    assert _run_on_cluster(node, JobClient(cluster_of(server), interval=0.1)) == 0
    first, second = (manifest["metadata"] for manifest in server.created)
    assert first["name"] != second["name"]
    requests = [r.method for r in server.requests if r.method in ("POST", "DELETE")]
    assert requests == ["DELETE", "POST", "DELETE"]


def test_the_chief_ends_when_the_launcher_is_gone(server):
    """Kubeflow kills the launcher of a run that is terminated, which then cannot delete its job."""
    seen, line = [], f"GET /api/v1/namespaces/{NAMESPACE}/pods/{LAUNCHER}"
    server.failures[line] = Answer({}, 503)
    threading.Timer(0.3, server.failures.clear).start()
    server.launcher_phase = "Failed"
    watch_launcher(cluster_of(server), seen.append, interval=0.05)
    server.failures[line] = Answer({}, 404)
    watch_launcher(cluster_of(server), seen.append, interval=0.05)
    reasons = ("Failed", "not there")
    assert seen == [f"the launcher's pod {LAUNCHER} is {reason}" for reason in reasons]
    server.failures[line] = Answer({}, 403)
    watch_launcher(cluster_of(server), seen.append, interval=0.05)  # is not permitted
    assert len(seen) == 2


def test_what_the_cluster_refuses_is_named_with_the_fix(server, node, capsys):
    client = JobClient(cluster_of(server), interval=0.1)
    for request, status, message in (
        (f"POST {JOBS}", 403, r"cannot create tfjobs in namespace team: 403 .*role"),
        (f"POST {JOBS}", 404, "Training Operator .* 1.7 to 1.9, installed"),
        (f"POST {JOBS}", 422, "cannot create tfjobs .*: 422 .*should match"),
        (f"GET /api/v1/namespaces/{NAMESPACE}/pods/", 403, "cannot get pods"),
    ):
        server.failures = {request: Answer({"message": "should match"}, status)}
        with pytest.raises(JobError, match=message):
            _run_on_cluster(node, client)
    # A job that cannot be deleted keeps its result.
    server.failures = {f"DELETE {JOBS}/": Answer({"message": "restarting"}, 503)}
    assert _run_on_cluster(node, client) == 0
    assert "is not deleted now: 503" in capsys.readouterr().out


@pytest.mark.slow(10)
def test_each_task_runs_the_entry_point_and_the_chiefs_output_reaches_the_launcher(
    tmp_path, monkeypatch
):
    """On this machine, as in a replay."""
    folder = tmp_path / "root" / "Trainer"
    (folder / "kfp").mkdir(parents=True)
    # As compiled files and Kubeflow's driver have them.
    places = {"output_model_run": "output_model_run", "model": "model", "executor-logs": "logs"}
    artifacts = {key: {"uri": str(folder / place)} for key, place in places.items()}
    output_file = folder / "kfp" / "output_metadata.json"
    executor_input = {
        "inputs": {"parameterValues": {"text": "costs $(HOME)"}},
        "outputs": {
            "artifacts": {key: {"artifacts": [each]} for key, each in artifacts.items()},
            "outputFile": str(output_file),
        },
    }
    kinds = {key: {"artifactType": MODEL} for key in ("model", "model_run")}
    declared = {"artifacts": kinds}
    inputs = {"parameters": {"text": {"parameterType": "STRING"}}}
    manifest = _tfjob_manifest("taxi", {"image": "x:1"}, {}, (1, 1))
    argv = ["launcher", MANIFEST, json.dumps(manifest)]
    argv += ["--executor_class_path", "role_executor.Executor"]
    argv += [INVOCATION, json.dumps(executor_input), OUTPUTS_SPEC, json.dumps(declared)]
    argv += [INPUTS_SPEC, json.dumps(inputs)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), *sys.path]))
    (folder / "tfjob_result.json").write_text("of an earlier attempt")
    assert tfjob_launcher.main(argv) == 0
    written = {path.name: path.read_text() for path in (folder / "model").iterdir()}
    assert written == dict.fromkeys(("chief-0", "worker-0"), "costs $(HOME)")
    output = json.loads(output_file.read_text())
    assert set(output["artifacts"]) == {"model", "output_model_run"}
    (found,) = output["artifacts"]["model"]["artifacts"]
    assert found["metadata"]["written_by"] == "chief-0"
