"""Reject profile values that the platform would refuse, or fail on after minutes.

The bounds are those of the platforms' documentation, cited next to each. Messages name the field,
the value and the fix. They never contain the value of an environment variable, which may be a
secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.common.json_types import JsonValue
from pipeline.common.secret_checks import looks_secret
from pipeline.config.cluster import (
    OBJECT_NAME,
    KubeflowConfig,
    NodeResources,
    TargetConfig,
    VertexConfig,
)
from pipeline.config.config import PipelineConfig

# Kubernetes: keys of Secrets, variables, devices.
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_DEVICE = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
# Google Cloud.
_ACCOUNT = re.compile(r"[a-z0-9][-a-z0-9]*@[-a-z0-9.]*\bgserviceaccount\.com")
_NETWORK = re.compile(r"projects/\d+/global/networks/[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_REGION = re.compile(r"([a-z]+-)+[a-z]+\d+")
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]|\d+")
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
# Container images: the reference grammar of OCI and Docker, with or without a domain.
IMAGE = re.compile(
    r"((?=[^/]*[.:])[A-Za-z0-9.-]+(:\d{1,5})?/)?"
    r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})",
    re.ASCII,
)
_MAX_LABELS = 64  # labels per resource of Google Cloud; TFX writes three of them
_TFX_LABELS = 3
_MAX_DEADLINE_SECONDS = 2**31 - 1  # maximum of a pod's activeDeadlineSeconds
_MAX_GPUS = 16
_OBJECT_NAME_FIX = "use lower-case letters, digits, and - . between them"
_WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu")

# Kubeflow: the largest general-purpose machines of AWS and Google Cloud have 384 cores, and no
# machine has more than 32 TiB. A larger value is a mistake of the unit: millicores, MiB.
_KUBEFLOW_BOUNDS = (384.0, 32 * 1024.0, "machines of AWS and Google Cloud")
# cloud.google.com/vertex-ai/docs/pipelines/machine-types: 96 CPUs and 624 GB.
_VERTEX_BOUNDS = (96.0, 624e9 / 2**30, "the machines that Vertex AI Pipelines chooses from")


def field_refusals(profile: TargetConfig) -> list[str]:
    """Return the malformed fields of a profile, one sentence each."""
    found = [*_image(profile), *_resources(profile)]
    if isinstance(profile, KubeflowConfig):
        found += [*_kubernetes_names(profile), *_environment(profile)]
    if isinstance(profile, VertexConfig):
        found += _google_names(profile)
    return found


def _image(profile: TargetConfig) -> Iterator[str]:
    image = profile.image
    if IMAGE.fullmatch(image):
        return
    if ":" not in image.rpartition("/")[2]:
        yield (
            f"{profile.section}.image={image}: no tag, so another run may get another image; use "
            "name:1.0, or name@sha256:..."
        )
    else:
        yield (
            f"{profile.section}.image={image}: not an image reference; use lower-case letters, "
            "digits, and . _ - between them, as in registry.example/team/name:1.0, or a digest of "
            "64 digits, as in name@sha256:..."
        )


def _resources(profile: TargetConfig) -> Iterator[str]:
    is_kubeflow = isinstance(profile, KubeflowConfig)
    most_cores, most_gib, owner = _KUBEFLOW_BOUNDS if is_kubeflow else _VERTEX_BOUNDS
    limits = {
        "cpu": (most_cores, "cores", "thousandths", 1000),
        "memory_gib": (most_gib, "GiB", "MiB", 1024),
    }
    for name, node in profile.resources.items():
        field = f"{profile.section}.resources.{name}"
        for key, (most, unit, wrong_unit, factor) in limits.items():
            value = getattr(node, key)
            if value is not None and value > most:
                yield (
                    f"{field}.{key}={value:g}: the largest of {owner} have {int(most)} {unit}; "
                    f"give {unit}, not {wrong_unit}: {min(most, value / factor):.3g}?"
                )
        minutes = node.timeout_minutes
        if minutes is not None and 60 * minutes > _MAX_DEADLINE_SECONDS:
            yield (
                f"{field}.timeout_minutes={minutes:g}: more than a pod may be given "
                f"({_MAX_DEADLINE_SECONDS // 60}); leave it out for no limit."
            )
        if is_kubeflow:
            yield from _kubernetes_device(field, node)


def _kubernetes_device(field: str, node: NodeResources) -> Iterator[str]:
    kind, count = node.accelerator, node.accelerator_count
    if kind is None:
        return
    if not _DEVICE.fullmatch(kind):
        yield (
            f"{field}.accelerator={kind}: not a Kubernetes resource, which is named by its device "
            "plugin; use nvidia.com/gpu."
        )
    elif kind in _WHOLE_GPUS and count > _MAX_GPUS:
        yield (
            f"{field}.accelerator_count={count}: no machine has more than {_MAX_GPUS} of {kind}; "
            f"use 1 to {_MAX_GPUS}."
        )


def _kubernetes_names(profile: KubeflowConfig) -> Iterator[str]:
    section, account = profile.section, profile.service_account
    if account is not None and not OBJECT_NAME.fullmatch(account):
        fix = "leave out what follows @" if "@" in account else _OBJECT_NAME_FIX
        yield (
            f"{section}.service_account={account}: not the name of a Kubernetes "
            f"ServiceAccount; {fix}."
        )
    variables = set(profile.environment)
    for secret, keys in profile.secrets.items():
        if not OBJECT_NAME.fullmatch(secret):
            yield (
                f"{section}.secrets.{secret}: not the name of a Kubernetes Secret; "
                f"{_OBJECT_NAME_FIX}."
            )
        if not keys:
            yield f"{section}.secrets.{secret}: names no key; use {{key: VARIABLE}}."
        for key, variable in keys.items():
            if not _SECRET_KEY.fullmatch(key):
                yield (
                    f"{section}.secrets.{secret}.{key}: not a key of a Kubernetes Secret; "
                    "use letters, digits, -, _ and ."
                )
            if variable in variables:
                yield (
                    f"{section}.secrets.{secret}.{key}: the variable {variable} is set twice, by "
                    "another key or by environment; leave one out."
                )
            variables.add(variable)
            if not _ENV_NAME.fullmatch(variable):
                yield _no_variable(f"{section}.secrets.{secret}.{key}", variable)


def _environment(profile: KubeflowConfig) -> Iterator[str]:
    field = f"{profile.section}.environment"
    for name, value in profile.environment.items():
        if not _ENV_NAME.fullmatch(name):
            yield _no_variable(field, name)
        elif "\0" in value:
            yield f"{field}.{name}: the value has a zero byte, which no variable can have."


def credential_refusals(there: PipelineConfig, profile: TargetConfig) -> dict[str, str]:
    """Return an error for each value that looks like a credential.

    The compiled file would show them to everybody who sees the run.

    Returns:
        Value -> the error, which names the field and not the value.
    """
    section = profile.section
    whole = {
        section: profile.model_dump(mode="json", by_alias=True),
        **there.model_dump(mode="json", by_alias=True, exclude={"cluster", "features"}),
    }
    found = dict[str, str]()
    for field, value in _texts("", whole):
        if any(value.startswith(each) for each in found):
            continue  # made from the same field, such as output.folder from pipeline_root
        name, text = "", value
        if field.startswith(f"{section}.environment."):
            name = field.rpartition(".")[2]
        elif (
            ".options." in field and ".beam." in f".{field}"
        ):  # an option of Beam, such as --s3_secret_access_key=...
            name, _, text = value.lstrip("-").partition("=")
            field = f"{field.rpartition('.')[0]}: --{name}"
        # The name of a key in Cloud KMS is not a secret.
        if not name.endswith("kms_key") and (reason := looks_secret(name, text)):
            variable = name if field.endswith(f".environment.{name}") else "VARIABLE"
            fix = (
                "Put it into a Kubernetes Secret (kubectl create secret generic NAME "
                f"--from-literal=key=...), and let nodes read the variable of {section}.secrets: "
                f"{{NAME: {{key: {variable}}}}}"
                if isinstance(profile, KubeflowConfig)
                else "Leave it out, and let nodes read it from Secret Manager with their service "
                "account"
            )
            found[value] = (
                f"{field}: {reason}, and the compiled file would show it to everybody who sees the "
                f"run. {fix}."
            )
    return found


def _texts(field: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Yield the texts in a value with their dotted paths."""
    if isinstance(value, str):
        yield field, value
    items = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else items:
        yield from _texts(f"{field}.{key}" if field else str(key), each)


def _no_variable(field: str, name: str) -> str:
    return (
        f"{field}: {name!r} is not the name of an environment variable; use letters, digits and _, "
        "and no digit first."
    )


# Field -> its form, and the fix.
_GOOGLE_NAMES = {
    "service_account": (
        _ACCOUNT,
        "give the account's e-mail, such as name@my-project.iam.gserviceaccount.com",
    ),
    "network": (
        _NETWORK,
        "give projects/NUMBER/global/networks/NAME, with the project's number (gcloud projects "
        "describe PROJECT --format='value(projectNumber)')",
    ),
    "region": (_REGION, "give a region, not a zone, such as europe-west4"),
    "project": (
        _PROJECT,
        "give the project's ID (6 to 30 lower-case letters, digits and hyphens) or its number",
    ),
    "machine_type": (_MACHINE, "give a machine type of Google Cloud, such as n1-standard-8"),
}


def _google_names(profile: VertexConfig) -> Iterator[str]:
    for name, (pattern, fix) in _GOOGLE_NAMES.items():
        value = getattr(profile, name)
        if value is not None and not pattern.fullmatch(value):
            yield f"{profile.section}.{name}={value}: not valid; {fix}."
    if len(profile.labels) > _MAX_LABELS - _TFX_LABELS:
        yield (
            f"{profile.section}.labels: {len(profile.labels)} labels; a job may have "
            f"{_MAX_LABELS - _TFX_LABELS} and those of TFX."
        )
