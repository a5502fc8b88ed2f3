"""docs/kubeflow.md and docs/vertex.md: their commands are executed in order in a fresh clone.

`support/doc_pages.py` says which commands are left out. Their replays take minutes: see
tests/cluster/test_deployment_pages.py. Servers on loopback stand for the platforms and for S3.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from command_line import ROOT
from doc_pages import Command, difference, execute, fresh_clone, page_commands

GOLDEN = ROOT / "tests" / "pipeline" / "targets" / "golden"
TEXTS = {
    target: (ROOT / "docs" / f"{target}.md").read_text(encoding="utf-8")
    for target in ("kubeflow", "vertex")
}
COMMANDS = {target: page_commands(text) for target, text in TEXTS.items()}
PROVIDER_KEYS = {
    "s3": {"endpoint", "region", "disableSSL", "forcePathStyle", "maxRetries", "credentials"},
    "gs": {"credentials"},
}
"""What `providers` of kfp-launcher may say: backend/src/v2/config/s3.go and gcs.go of KFP 2.15."""
SECRET_KEYS = {
    "s3": {"secretName", "accessKeyKey", "secretKeyKey"},
    "gs": {"secretName", "tokenKey"},
}


def quick(target: str) -> list[Command]:
    """The commands of a page, except its replay."""
    return [each for each in COMMANDS[target] if " replay " not in each.text]


def only_print(text: str) -> str:
    """Prints the Containerfile in place of a build, which takes root and minutes."""
    if " image build " not in text:
        return text
    return f"{text} --output context >/dev/null && cat context/Containerfile"


def node_names(target: str, suffix: str) -> list[str]:
    """The nodes of the compiled taxi pipeline in order."""
    from pipeline.targets.compiled_spec import CompiledSpec, in_order

    spec = CompiledSpec.read(GOLDEN / f"taxi-{target}{suffix}").spec
    return in_order(spec["root"]["dag"]["tasks"])


def check_outputs(executed, replaced):
    """Compares what the page shows with what was printed, and the image's build by its steps."""
    for each in executed:
        if not each.command.shown:
            continue
        if " image build " in each.command.text:
            assert_steps_are_those_of(each.output, each.command.shown)
        else:
            wrong = difference(each.command.shown, each.output, replaced)
            assert not wrong, f"line {each.command.line}: {each.command.text}\n{wrong}"


def assert_steps_are_those_of(containerfile: str, shown: str) -> None:
    echoed = re.findall(r'echo "== (.+)" \\$', containerfile, re.MULTILINE)
    patterns = [re.sub(r"\\\$(\\\(.*?\\\)|\\\{.*?\\\}|\w+)", ".+", re.escape(e)) for e in echoed]
    steps = re.findall(r"^== (.+)$", shown, re.MULTILINE)
    assert len(steps) == 6
    assert [s for s in steps if not any(re.fullmatch(p, s) for p in patterns)] == []


@pytest.mark.slow(15)
def test_kubeflow_page(tmp_path, monkeypatch):
    import boto3
    from kubeflow_server import KubeflowServer, run_now
    from moto.server import ThreadedMotoServer

    for name in ("KF_PIPELINES_UI_ENDPOINT", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    clone = fresh_clone(tmp_path)
    s3 = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    s3.start()
    host, port = s3.get_host_and_port()
    bucket = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    bucket.create_bucket(Bucket="mlpipeline")
    kubeflow = KubeflowServer()
    nodes = node_names("kubeflow", ".yaml")
    kubeflow.polls = [run_now("SUCCEEDED", dict.fromkeys(nodes, "SUCCEEDED"))]
    with kubeflow.serving():
        places = {
            "http://localhost:8080": kubeflow.url,
            "http://localhost:9000": f"http://{host}:{port}",
        }

        def adapt(text: str) -> str:
            for shown, here in places.items():
                text = text.replace(shown, here)
            return only_print(text)

        executed = execute(quick("kubeflow"), clone, adapt=adapt)
        check_outputs(executed, {here: shown for shown, here in places.items()})
    body = bucket.get_object(Bucket="mlpipeline", Key="data/data.csv")["Body"].read()
    s3.stop()
    assert body == (clone / "data" / "data.csv").read_bytes()
    assert body.count(b"\n") == 15_003
    (run,) = kubeflow.runs.values()
    assert run["runtime_config"]["pipeline_root"] == "s3://mlpipeline/pipelines"
    (uploaded,) = kubeflow.uploaded.values()
    assert uploaded == (clone / "chicago-taxi-kubeflow.yaml").read_bytes()
    check_launcher_config(clone)


def check_launcher_config(clone: Path) -> None:
    """The ConfigMap says the same as the profile."""
    profile = yaml.safe_load((clone / "my.yaml").read_text())["cluster"]["kubeflow"]
    written = yaml.safe_load((clone / "kfp-launcher.yaml").read_text())
    assert (written["kind"], written["metadata"]["name"]) == ("ConfigMap", "kfp-launcher")
    assert written["data"]["defaultPipelineRoot"] == profile["pipeline_root"]
    s3 = check_providers(yaml.safe_load(written["data"]["providers"]))["s3"]["default"]
    assert f"http://{s3['endpoint']}" == profile["environment"]["AWS_ENDPOINT_URL"]
    assert s3["disableSSL"] is True
    assert s3["region"] == profile["environment"]["AWS_DEFAULT_REGION"]
    secret = s3["credentials"]["secretRef"]
    keys = {
        secret["accessKeyKey"]: "AWS_ACCESS_KEY_ID",
        secret["secretKeyKey"]: "AWS_SECRET_ACCESS_KEY",
    }
    assert profile["secrets"] == {secret["secretName"]: keys}


def check_providers(providers):
    """Every key is one that Kubeflow's launcher reads."""
    for scheme, provider in providers.items():
        assert list(provider) == ["default"]
        assert provider["default"].keys() <= PROVIDER_KEYS[scheme]
        credentials = provider["default"]["credentials"]
        assert credentials.keys() == {"fromEnv", "secretRef"}
        assert credentials["secretRef"].keys() == SECRET_KEYS[scheme]
    return providers


def test_providers_of_other_buckets_have_the_keys_that_kubeflow_reads():
    page = (ROOT / "docs" / "cluster-problems.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert check_providers(yaml.safe_load(text)).keys() == {"s3", "gs"}


@pytest.mark.slow(15)
def test_vertex_page(tmp_path, monkeypatch):
    from vertex_server import VertexServer, client_environment, job_now, write_account_key

    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    (clone := tmp_path / "clone").mkdir()
    fresh_clone(clone)
    vertex = VertexServer()
    blessing = {"outputs": {"blessing": {"artifacts": [{"metadata": {"blessed": 1}}]}}}
    tasks = dict.fromkeys(node_names("vertex", ".json"), "SUCCEEDED")
    tasks["Evaluator"] = ("SUCCEEDED", blessing)
    vertex.polls = [job_now("SUCCEEDED", **tasks)]
    with vertex.serving():
        environment = client_environment(write_account_key(tmp_path / "key.json"), vertex.url)
        executed = execute(quick("vertex"), clone, environment=environment, adapt=only_print)
        check_outputs(executed, {})
    ((name, job),) = vertex.jobs.items()
    assert name.startswith("projects/my-project/locations/europe-west4/pipelineJobs/chicago-taxi-")
    assert job.service_account == "pipelines@my-project.iam.gserviceaccount.com"
    assert job.runtime_config.gcs_output_directory == "gs://my-bucket/pipelines"
    assert (clone / "chicago-taxi-vertex.json").exists()


@pytest.mark.parametrize("target", COMMANDS)
def test_each_page_shows_the_whole_way(target):
    commands = COMMANDS[target]
    executed = [each.text for each in commands if each.is_executed]
    words = [re.search(r"-m pipeline (\w+)", text) for text in executed]
    assert [w[1] for w in words if w] == ["compile", "replay", "image", "submit"]
    assert ". .venv/bin/activate" in executed
    left_out = " ".join(each.text for each in commands if each.needs_platform)
    # The program that the build's output names.
    assert re.findall(r"\b(?:docker|buildah|podman) (?:login|push)", left_out) == [
        *("buildah login", "buildah push")
    ]


PAGE = """
```sh
# a comment
make setup                # the first time
export A=1
cat > x.yaml <<'EOF'
a: 1   # docker
EOF
kubectl get pods && echo "$A"
export B=$(gcloud x)
```

```yaml
not: executed
```

```console
$ cat x.yaml
a: 1   # docker
$ echo 'done in 12.5 s' && echo middle && echo end
done in 3 s
...
end
```
"""


def test_commands_are_found_and_those_of_platforms_left_out(tmp_path):
    commands = page_commands(PAGE)
    assert [each.line for each in commands] == [4, 5, 6, 9, 10, 18, 20]
    executed = execute(commands, tmp_path)
    texts = ["export A=1", "cat > x.yaml <<'EOF'\na: 1   # docker\nEOF", "cat x.yaml"]
    assert [each.command.text for each in executed][:3] == texts
    shown = [each for each in executed if each.command.shown]
    assert [difference(each.command.shown, each.output, {}) for each in shown] == ["", ""]
    assert "end" in difference("done in 3 s\nmiddle\n", executed[-1].output, {})
    # A command that fails is named with its line, and ends it.
    commands = page_commands("```sh\ntrue\necho out; cat missing-file\ntouch never\n```\n")
    with pytest.raises(AssertionError, match=r"(?s)line 3: echo out.*missing-file"):
        execute(commands, tmp_path)
    assert not (tmp_path / "never").exists()
