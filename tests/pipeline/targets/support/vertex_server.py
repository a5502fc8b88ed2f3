"""Vertex AI's PipelineService over REST, by the installed client's own protos.

What comes in is parsed into a PipelineJob, which knows every field or the request fails; what goes
out is that message.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from loopback import Answer, Loopback, Request

Task = aiplatform_v1.PipelineTaskDetail
START = "2026-11-24T12:00:00Z"
# Of accounts of Google's own universe the client asks, in the background, where they may be used.
UNIVERSE = "loopback.test"


class VertexServer(Loopback):
    """One region.

    Attributes:
        jobs: what was created, by name.
        polls: what a job is at each question, from the first; the last one stays.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.jobs: dict[str, aiplatform_v1.PipelineJob] = {}
        self.polls: list[aiplatform_v1.PipelineJob] = []

    def _answer(self, request: Request) -> Answer:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        found = re.fullmatch(r"/v1/(projects/[^/]+/locations/[^/]+)/pipelineJobs", request.path)
        if found and request.method == "POST":
            job = aiplatform_v1.PipelineJob()
            json_format.Parse(request.body, aiplatform_v1.PipelineJob.pb(job))
            job.name = f"{found[1]}/pipelineJobs/{request.query['pipelineJobId']}"
            self.jobs[job.name] = job
            return said(job)
        name = request.path.removeprefix("/v1/")
        if name in self.jobs and request.method == "GET":
            now = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
            now.name = name
            return said(now)
        return error(404, "NOT_FOUND", f"{request.path} is not found.")


def said(message: Any) -> Answer:
    """A message of the API as an answer."""
    return Answer(json.loads(json_format.MessageToJson(type(message).pb(message))))


def error(code: int, status: str, words: str) -> Answer:
    """As Google's APIs say what is wrong."""
    return Answer({"error": {"code": code, "message": words, "status": status}}, code)


def job_now(state: str, words: str = "", **tasks: Any) -> aiplatform_v1.PipelineJob:
    """A job with nodes.

    Args:
        state: `RUNNING`, ...
        words: its error.
        tasks: state of each node; beside it fields of its detail.
    """
    details = [Task(task_name="chicago-taxi-20261124120000", state=Task.State.RUNNING)]
    for index, (name, given) in enumerate(tasks.items()):
        own, fields = given if isinstance(given, tuple) else (given, {})
        ended = {"end_time": f"2026-11-24T12:{index + 1:02d}:00Z"}
        done = own in ("SUCCEEDED", "FAILED", "SKIPPED")
        details.append(
            Task(
                {
                    "task_name": name,
                    "state": own,
                    "start_time": START,
                    **(ended if done else {}),
                    **fields,
                }
            )
        )
    return aiplatform_v1.PipelineJob(
        {
            "state": f"PIPELINE_STATE_{state}",
            "job_detail": {"task_details": details},
            **({"error": {"code": 9, "message": words}} if words else {}),
        }
    )


def write_account_key(file: Path) -> Path:
    """Writes a key file whose tokens the client signs itself."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": "submitter@my-project.iam.gserviceaccount.com",
        "private_key": text.decode(),
        "token_uri": "http://127.0.0.1:9/token",
        "universe_domain": UNIVERSE,
    }
    file.write_text(json.dumps(account))
    return file


def client_environment(key: Path, url: str) -> dict[str, str]:
    """Variables by which Google's clients find that account, and a server in place of Vertex."""
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(key),
        "GOOGLE_CLOUD_UNIVERSE_DOMAIN": UNIVERSE,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{url}/",
    }
