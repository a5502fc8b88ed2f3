"""An API server of Kubernetes with a Training Operator, whose pods are processes here."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema
from loopback import Answer, Loopback, Request

SCHEMA = json.loads(Path(__file__).with_name("tfjob_schema.json").read_text())
NAMESPACE = "team"
LAUNCHER = "taxi-x7-impl-1"
JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Pod:
    """A process, and the lines that it wrote, each with its time as the kubelet writes it."""

    def __init__(self, name: str, job: str, template: dict[str, Any], tf_config: str) -> None:
        (container,) = template["spec"]["containers"]
        words = [*container["command"], *container.get("args", [])]
        # What the kubelet does with $(NAME) in arguments, of which there are no variables here.
        words = [re.sub(r"\$\$", "$", re.sub(r"(?<!\$)\$\(\w+\)", "EXPANDED", w)) for w in words]
        if words[0] == "python":
            words[0] = sys.executable
        env = {each["name"]: each.get("value", "") for each in container["env"]}
        self.name, self.job, self.template = name, job, template
        self.tf_config = json.loads(tf_config)
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env, "TF_CONFIG": tf_config},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for number, raw in enumerate(self.process.stdout):
            now = datetime.datetime.now(datetime.timezone.utc)
            time = f"{now:%Y-%m-%dT%H:%M:%S}.{number:09}Z"
            self.lines.append(f"{time} {raw.decode().rstrip()}")

    def as_json(self, *, pending: bool) -> dict[str, Any]:
        code = self.process.poll()
        phase, state = "Running", {"running": {}}
        if pending:
            phase = "Pending"
            state = {"waiting": {"reason": "ContainerCreating", "message": ""}}
        elif code is not None:
            phase = "Failed" if code else "Succeeded"
            reason = "Error" if code else "Completed"
            exit_code = code if code >= 0 else 128 - code
            state = {"terminated": {"exitCode": exit_code, "reason": reason}}
        status = {
            "name": "tensorflow",
            "image": "x",
            "imageID": "x",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        return {
            "metadata": {"name": self.name, "uid": self.name},
            "spec": self.template["spec"],
            "status": {"phase": phase, "containerStatuses": [status]},
        }


class KubernetesServer(Loopback):
    """One namespace.

    Attributes:
        jobs: name -> TFJob.
        pods: name -> pod of a job.
        created: each manifest that was accepted.
        looks: how often a job was looked at.
        launcher_phase: of the pod that creates jobs.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.created: list[dict[str, Any]] = []
        self.looks = 0
        self.launcher_phase = "Running"

    def close(self) -> None:
        """Ends every pod."""
        for pod in self.pods.values():
            pod.process.kill()
            pod.process.wait()

    def add(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Creates a job and its pods, as the operator names them."""
        jsonschema.validate(manifest, SCHEMA)
        name = manifest["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", name), name
        self.created.append(manifest)
        self.jobs[name] = {**manifest, "status": {}}
        replicas = manifest["spec"]["tfReplicaSpecs"]
        cluster = {
            role.lower(): [f"127.0.0.1:{_free_port()}" for _ in range(each["replicas"])]
            for role, each in replicas.items()
        }
        for role, each in replicas.items():
            for index in range(each["replicas"]):
                task = {"type": role.lower(), "index": index}
                config = {"cluster": cluster, "task": task, "environment": "cloud"}
                pod = f"{name}-{role.lower()}-{index}"
                self.pods[pod] = Pod(pod, name, each["template"], json.dumps(config))
        return self.jobs[name]

    def _answer(self, request: Request) -> Answer:
        if request.path == JOBS and request.method == "POST":
            return Answer(self.add(json.loads(request.body)), 201)
        if request.path == JOBS:
            key, value = request.query["labelSelector"].split("=")
            found = [j for j in self.jobs.values() if j["metadata"]["labels"].get(key) == value]
            return Answer({"items": found})
        if request.path.startswith(f"{JOBS}/"):
            return self._job(request, request.path.removeprefix(f"{JOBS}/"))
        if request.path == PODS:
            job = request.query["labelSelector"].removeprefix("training.kubeflow.org/job-name=")
            found = [pod for pod in self.pods.values() if pod.job == job]
            return Answer({"items": [pod.as_json(pending=self.looks < 2) for pod in found]})
        name, _, part = request.path.removeprefix(f"{PODS}/").partition("/")
        if name == LAUNCHER:
            metadata = {"name": LAUNCHER, "uid": "uid-of-launcher"}
            spec = {"serviceAccountName": "default-editor", "containers": [{"name": "main"}]}
            status = {"phase": self.launcher_phase}
            return Answer({"metadata": metadata, "spec": spec, "status": status})
        if name not in self.pods:
            return Answer({"message": "not found"}, 404)
        pod = self.pods[name]
        if part == "log":
            # A connection that ends early: what is there by now.
            return Answer(
                "".join(f"{line}\n" for line in list(pod.lines)).encode(), kind="text/plain"
            )
        return Answer(pod.as_json(pending=False))

    def _job(self, request: Request, name: str) -> Answer:
        if name not in self.jobs:
            return Answer({"message": "not found"}, 404)
        mine = [pod for pod in self.pods.values() if pod.job == name]
        if request.method == "DELETE":
            for pod in mine:
                pod.process.send_signal(signal.SIGTERM)
            return Answer(self.jobs.pop(name))
        self.looks += 1
        if self.looks < 3:
            return Answer(self.jobs[name])
        codes = {pod.name: pod.process.poll() for pod in mine}
        conditions = [{"type": "Running", "status": "True"}]
        if any(codes.values()):
            message = f"TFJob {name} has failed because 1 replica(s) failed."
            conditions.append({"type": "Failed", "status": "True", "message": message})
        elif codes[f"{name}-chief-0"] == 0:
            conditions.append({"type": "Succeeded", "status": "True"})
        return Answer({**self.jobs[name], "status": {"conditions": conditions}})


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
