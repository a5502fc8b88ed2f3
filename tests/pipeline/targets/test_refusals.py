"""What a target cannot do, and values that it would refuse: errors with a fix when compiling."""

from __future__ import annotations

import re
import sys

import pytest
from compiled_taxi import BUCKETS, ROOT, TAXI, compiled, taxi, taxi_at_target

from pipeline.common.errors import ConfigError
from pipeline.common.secret_checks import looks_secret
from pipeline.config.config_file import load_config
from pipeline.targets.compile import compile_pipeline
from pipeline.targets.refusals import refusals

both_targets = pytest.mark.parametrize("target", BUCKETS)

# A target and values of --set -> a pattern of the message. A leading dot is `cluster.<target>`.
REFUSED = r"""
kubeflow .image=registry.example/x -> image=.*name:1\.0.*no tag
vertex .pipeline_root=s3://bucket/x -> Cloud Storage alone; use gs://
kubeflow .pipeline_root=minio://mlpipeline/root -> minio://; write s3://
kubeflow .pipeline_root=s3://key:tell-nobody@bucket_/x -> root: its value has a URL with a password
kubeflow .pipeline_root=s3://bucket/x?endpoint=minio:9000
  -> pipeline_root=s3://bucket/x\?end.* use s3://bucket/x\. .*AWS_ENDPOINT_URL
vertex .schema_path=gs://LONG/x -> schema_path=.*3 to 63
vertex .data_path=rides.csv -> path of this machine, which no pod
kubeflow .data_path=package://tfx/x.csv
  -> data_path=package://tfx/x.csv: a file inside a Python package.*kubeflow\.data_path
kubeflow serving.push_folder=/models -> serving.push_folder=/models: a path of
kubeflow .data_path=s3://bucket/{YYYY}/x.csv -> x\.csv: a date needs .*add \{MM\}, \{DD\}
kubeflow tracking.mlflow=http://h:5000 -> tracking.mlflow=http://h:5000: only `run`.*tracking=null
kubeflow data.spans=7 -> data.spans=7: data.path=s3:.* has no \{SPAN\}
kubeflow .data_path=s3://bucket/{SPAN}/x | data.eval_path=x.csv | .eval_path=s3://bucket/eval.csv
  -> one of them alone
kubeflow name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  -> 60 characters; Kubeflow's runs.*use 57 or fewer
kubeflow .labels.team=-a -> labels\.team=-a: not a valid Kubernetes label
kubeflow .resources.Trainer.accelerator=NVIDIA/gpu/1 -> accelerator=NVIDIA/gpu/1.*nvidia\.com/gpu
vertex .resources.Trainer.accelerator=NVIDIA_T4
  -> accelerator=NVIDIA_T4: Vertex names a device by its model; use NVIDIA_TESLA_T4
vertex .resources.Trainr.cpu=1 -> resources\.Trainr: no node has this name.* ArrowExampleGen,
kubeflow .resources.Trainer.cpu=500 -> resources\.Trainer\.cpu=500: .*at most 384
vertex .beam={engine: multi_processing, workers: 8} | .resources.Transform.cpu=4
  -> beam.workers=8 exceeds.*Transform gets 4 cores
kubeflow .beam={engine: multi_processing, workers: 1}
  -> engine=multi_processing: TensorFlow in Beam's workers does not know s3://
kubeflow .beam={engine: in_memory, options: [--s3_secret_access_key=tell-nobody]}
  -> s3_secret_access_key: its name.*cluster\.kubeflow\.secrets
vertex .beam={engine: dataflow} -> dataflow needs .*--project=.*--region=
vertex training.strategy=multi_worker -> multi_worker with one worker: give
vertex training.workers=2 | .resources.Trainer.accelerator=NVIDIA_L4
  -> machine_type=n1-standard-8: has no NVIDIA_L4; use g2-standard-8
vertex training.workers=2 | .resources.Trainer.cpu=4
  -> Trainer: cpu and memory_gib are not .*name cluster\.vertex\.machine_type
vertex .resources.Transform.timeout_minutes=5 -> timeout_minutes=5: .*a Trainer on several
vertex .resources.Trainer.pod={nodeSelector: {}} -> resources: Trainer\.pod: Vertex has no pods
kubeflow .tolerations=[] -> tolerations: removed in 0\.3\.0\. Instead, .*cluster\.kubeflow\.pod
vertex .pod={} -> cluster\.vertex\.pod: unknown key
kubeflow .service_account=trainer@my-project.iam.gserviceaccount.com -> leave out what follows @
kubeflow .environment={AWS_SECRET_ACCESS_KEY: tell-nobody}
  -> \.AWS_SECRET_ACCESS_KEY: .*cluster\.kubeflow\.secrets: \{NAME: \{key: AWS_SECRET_ACCESS_KEY\}\}
kubeflow .pod={podMetadata: {annotations: {a: GHP}}} -> annotations\.a: .*GitHub
kubeflow nodes=[{class: a.B, parameters: {b: {c: GHP}}}] -> nodes\.0\.parameters\.b\.c: .*GitHub
kubeflow .environment={DATABASE: 'postgres://me:tell-nobody@host/db'}
  -> environment\.DATABASE: .*URL with a password.*secrets
kubeflow .secrets={My_Secret: {k: A}} -> secrets\.My_Secret: .*lower-case
kubeflow .environment={A: x} | .secrets={s: {k: A}} -> variable A is set twice
vertex training.loss=nowhere.loss -> training.loss=nowhere.loss: there is no Python module
"""
GITHUB = "ghp_tellnobody0123456789abcdefghijklmnop"  # of no account
LONG = {"GHP": GITHUB, "LONG": "b" * 64}
ROW = re.compile(r"^(kubeflow|vertex) (.+?)\s+-> (.+)$", re.MULTILINE)


@both_targets
def test_what_the_target_cannot_do_is_refused_with_its_fix(target):
    rows, wrong = ROW.findall(REFUSED), []
    assert len(rows) == REFUSED.count(" -> "), "every row of the table is read"
    for _, overrides, pattern in (row for row in rows if row[0] == target):
        for short, text in LONG.items():
            overrides = overrides.replace(short, text)
        message = ""
        try:
            compiled(target, *overrides.split(" | "))
        except ConfigError as error:
            message = str(error)
        if not re.search(pattern, message) or "tell-nobody" in message or GITHUB in message:
            wrong.append(f"{overrides}: {message or 'accepted'}")
    assert not wrong, "\n".join(wrong)


ACCEPTED = f"""
kubeflow .service_account=pipeline-runner.v1
kubeflow .environment={{AWS_ENDPOINT_URL: 'http://minio:9000', _x.y-z: ''}}
kubeflow .secrets={{minio.v1: {{access-key_1.x: A, secretkey: B}}}}
kubeflow .resources.default={{cpu: 384, memory_gib: 32768, timeout_minutes: 1000000.0}}
kubeflow .image=localhost:5000/a__b/c-d.e@sha256:{"0" * 64}
vertex .resources.Trainer={{cpu: 96, memory_gib: 580}}
vertex .pipeline_root=gs://my_bucket.example.com/root
vertex .project=my-project | .region=europe-west4 | .beam.engine=dataflow
"""


def test_valid_values_are_accepted():
    for row in ACCEPTED.strip().splitlines():
        target, overrides = row.split(" ", 1)
        there, profile = taxi_at_target(target, *overrides.split(" | "))
        assert refusals(there, profile) == [], row


@both_targets
def test_a_job_server_that_nodes_do_not_reach_is_refused(target):
    rows = [
        ("--job_endpoint=LOCALHOST:1, --environment_type=EXTERNAL", "node itself"),
        ("--job_endpoint=jobs:8099", "--environment_type=LOOPBACK runs the Python code in"),
        ("--job_endpoint=jobs:8099, --environment_type=EXTERNAL", ""),
        ("--job_endpoint=embed", ""),
    ]
    for options, message in rows:
        there, profile = taxi_at_target(target, f".beam={{engine: flink, options: [{options}]}}")
        errors = "\n".join(refusals(there, profile))
        assert message in errors if message else "beam.options" not in errors, options


SOURCE = """
from typing import List

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Integer


def derive(inputs):
    return {}


@component
def Named(value: OutputArtifact[Integer], names: Parameter[List[str]]):
    value.value = len(names)
"""


@both_targets
def test_code_that_no_package_holds_and_parameters_of_other_types_are_refused(
    target, tmp_path, monkeypatch
):
    (tmp_path / "my_code.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.delitem(sys.modules, "my_code", raising=False)
    derive = "features.derive=my_code.derive"
    node = "nodes=[{class: my_code.Named, parameters: {names: [a, b]}}]"
    for override in (derive, node):
        with pytest.raises(ConfigError) as caught:
            compile_pipeline(taxi(target, override), target)
        message = str(caught.value)
        assert "my_code.py is part of no package" in message
        assert f"pyproject.toml into {tmp_path} ([project]" in message
        assert f"--with {tmp_path}" in message
    assert "nodes.0.class=my_code.Named" in message
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my_code"\nversion = "1.0"\n')
    assert "my_code.derive" in compile_pipeline(taxi(target, derive), target)
    with pytest.raises(ConfigError, match=r"nodes\.0\.parameters\.names: is a list; .*text"):
        compile_pipeline(taxi(target, node), target)


def test_all_reasons_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        compiled("vertex", ".image=x", ".data_path=rides.csv")
    assert len(str(caught.value).splitlines()) == 2


def test_without_a_profile_the_message_has_the_lines_to_add():
    with pytest.raises(ConfigError, match=r"cluster\.vertex: required.*\n  cluster:\n    vertex:"):
        compile_pipeline(load_config(TAXI), "vertex")


ALNUM = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
CREDENTIALS = {
    "GitHub": f"github_pat_{ALNUM}_{ALNUM}",
    "HTTP header": "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "Azure": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcd1234==;",
    "token of Slack": "xoxb-1234567890-abcdef",
    "key of Google": f"AIza{ALNUM[:35]}",
    "key of an API": f"sk-ant-api03-{ALNUM}",
    "registry": f"pypi-{ALNUM}",
    "secret key of AWS": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMII",
    "URL with a password": "x=https://user:pa55@host/",
    "URL with a token": "https://b.blob.core.windows.net/c?sv=1&sig=ab%3D",
}
SECRET_NAMES = (
    *("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DB_PASSWORD", "OPENAI_API_KEY", "client.secret"),
)
NO_CREDENTIALS = [
    *("da39a3ee5e6b4b0d3255bfef95601890afd80709", "s3://bucket/" + "folder/" * 8 + "x.csv"),
    *("sha256:" + "0" * 64, "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"),
    *("sk-learn-pipelines-of-the-team", "my_package.module.function", "Bearer", "token=", "[CLS]"),
    *("a" * 40, "https://host/a?b=c", "task-sk-1", "http://user@proxy:8080/a:b@c"),
]
PLAIN_NAMES = {
    "PASSWORD": "",  # nothing to hide
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "GOOGLE_APPLICATION_CREDENTIALS": "/secrets/key.json",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
    "MAX_TOKENS": "512",
    "KEY": "x",
}


def test_variables_that_hold_credentials_are_recognised():
    for name in SECRET_NAMES:
        assert "name is that of a credential" in (looks_secret(name, "x") or ""), name
    for reason, value in CREDENTIALS.items():
        for text in (value, f"--header=X: {value} # a"):
            assert reason in (looks_secret("SETTING", text) or ""), text
    for name, value in [*PLAIN_NAMES.items(), *(("SETTING", v) for v in NO_CREDENTIALS)]:
        assert looks_secret(name, value) is None, (name, value)
