"""Reject profile values that the platform would refuse, or fail on after minutes.

The bounds are those of the platforms' documentation, cited next to each. Messages name the field,
the value and the fix. They never contain the value of an environment variable, which may be a
secret.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import NamedTuple

from components.arrow_example_gen.spans import check_pattern, has_placeholders
from pipeline.common.json_types import JsonValue
from pipeline.common.secret_checks import looks_secret
from pipeline.config.cluster import (
    LABEL_KEY,
    LABEL_VALUE,
    OBJECT_NAME,
    KubeflowConfig,
    TargetConfig,
)
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote

# Container images: the reference grammar of OCI and Docker, with or without a domain.
IMAGE = re.compile(
    r"((?=[^/]*[.:])[A-Za-z0-9.-]+(:\d{1,5})?/)?"
    r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})",
    re.ASCII,
)
_OBJECT_NAME_FIX = "use lower-case letters, digits, and - . between them"
# What a value is -> its form, and the fix.
_FORMS = {
    "image reference": (
        IMAGE,
        "use lower-case names and a tag, as in registry.example/team/name:1.0, or a digest of 64 "
        "digits, as in name@sha256:...; with no tag another run may get another image",
    ),
    "Kubernetes ServiceAccount": (OBJECT_NAME, f"{_OBJECT_NAME_FIX}, and leave out what follows @"),
    "Kubernetes label": (
        re.compile(f"{LABEL_KEY.pattern}={LABEL_VALUE.pattern}"),
        "use letters, digits, and - _ . between them, 63 at most",
    ),
    "Kubernetes Secret": (OBJECT_NAME, _OBJECT_NAME_FIX),
    "key of a Kubernetes Secret": (
        re.compile(r"[-._a-zA-Z0-9]{1,253}"),
        "use letters, digits, -, _ and .",
    ),
    "name of a variable": (
        re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*"),
        "use letters, digits and _, and no digit first",
    ),
    "Kubernetes resource": (
        re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?"),
        "use the name of its device plugin, such as nvidia.com/gpu",
    ),
}
# With dots, Google's names may have 222 characters, 63 per part.
_BUCKETS = {
    scheme: re.compile(
        rf"(?!\d+(?:\.\d+){{3}}$)(?=[a-z0-9].{{1,{longest}}}[a-z0-9]$)"
        rf"[{letters}]{{1,63}}(\.[{letters}]{{1,63}})*"
    )
    for scheme, letters, longest in (("gs", "a-z0-9_-", 220), ("s3", "a-z0-9-", 61))
}
# TensorFlow and Beam list no files there, or each pod has its own.
_NO_STORES = ("file", "ftp", "ftps", "http", "https", "ram")
# `?` is also a wildcard: `rows-?.csv`.
_QUERY = re.compile(r"\?[\w.-]+=.*|#.*")


def field_refusals(profile: TargetConfig) -> list[str]:
    """Return the malformed fields of a profile, one sentence each."""
    section = profile.section
    errors = []
    for kind, field, value in _named_values(profile):
        form, fix = _FORMS[kind]
        if not form.fullmatch(value):
            errors.append(f"{section}.{field}: not a valid {kind}; {fix}.")
    if isinstance(profile, KubeflowConfig):
        variables = [each for keys in profile.secrets.values() for each in keys.values()]
        counts = collections.Counter([*profile.environment, *variables])
        errors += [
            f"{section}.secrets: the variable {name} is set twice, by another key or by "
            "environment; leave one out."
            for name, count in counts.items()
            if count > 1
        ]
    return errors


def _named_values(profile: TargetConfig) -> Iterator[tuple[str, str, str]]:
    """Yield what a value is, its field for a message, and the value."""
    yield "image reference", f"image={profile.image}", profile.image
    if not isinstance(profile, KubeflowConfig):
        return
    for key, value in profile.labels.items():
        yield "Kubernetes label", f"labels.{key}={value}", f"{key}={value}"
    if (account := profile.service_account) is not None:
        yield "Kubernetes ServiceAccount", f"service_account={account}", account
    for name, node in profile.resources.items():
        if node.accelerator is not None:
            field = f"resources.{name}.accelerator={node.accelerator}"
            yield "Kubernetes resource", field, node.accelerator
    for name in profile.environment:
        yield "name of a variable", f"environment: {name!r}", name
    for secret, keys in profile.secrets.items():
        yield "Kubernetes Secret", f"secrets.{secret}", secret
        for key, variable in keys.items():
            field = f"secrets.{secret}.{key}"
            yield "key of a Kubernetes Secret", field, key
            yield "name of a variable", f"{field}: {variable!r}", variable


class _Place(NamedTuple):
    """A path of the configuration at the target, and what to give instead of a local path."""

    field: str
    path: str
    fix: str


def _places(there: PipelineConfig, profile: TargetConfig) -> list[_Place]:
    """Return the paths that nodes use."""
    section = profile.section
    remote = "use gs://, s3:// or another place that tf.io.gfile knows"
    places = [_Place(f"{section}.pipeline_root", profile.pipeline_root, remote)]
    for name, own, path in (
        ("data.path", "data_path", there.data.path),
        ("data.eval_path", "eval_path", there.data.eval_path),
        ("schema.path", "schema_path", there.data_schema.path),
    ):
        field = f"{section}.{own}" if getattr(profile, own) else name
        places.append(_Place(field, path or "", f"name a remote place as {section}.{own}"))
    push = there.serving.push_folder or ""
    places.append(_Place("serving.push_folder", push, "name a remote folder"))
    return [place for place in places if place.path]


def place_refusals(there: PipelineConfig, profile: TargetConfig) -> Iterator[str]:
    """Yield the places that nodes cannot use, one sentence each."""
    for place in _places(there, profile):
        if problem := _place_problem(place):
            yield f"{place.field}={place.path}: {problem}."
        try:
            check_pattern(place.path)
        except ValueError as error:
            yield f"{place.field}={error}."
    # The YAML's paths were compared at load time, and a profile may replace one of them.
    data = there.data
    if data.eval_path and has_placeholders(data.path) != has_placeholders(data.eval_path):
        section = profile.section
        yield (
            f"{section}: data.path={data.path} and data.eval_path={data.eval_path} there: "
            "{SPAN} or a date is in one of them alone; put it into both, as "
            f"{section}.data_path and {section}.eval_path."
        )


def _place_problem(place: _Place) -> str:
    path, fix = place.path, place.fix
    scheme, _, rest = path.partition("://")
    bucket = rest.partition("/")[0]
    query = _QUERY.search(path)
    if path.startswith(PACKAGE_SCHEME):
        return (
            "a file inside a Python package of this machine; copy it to a place that the cluster "
            f"reads and {fix}"
        )
    if not is_remote(path):
        return f"a path of this machine, which no pod has; {fix}"
    if scheme.lower() in _NO_STORES:
        return (
            f"nodes cannot read or write {scheme}:// places; copy it to a bucket and use "
            "gs://bucket/folder or s3://bucket/folder"
        )
    if scheme == "minio":
        return (
            "no TensorFlow has a file system for minio://; write s3://, give MinIO's address as "
            "cluster.kubeflow.environment.AWS_ENDPOINT_URL, and see docs/kubeflow.md for its secret"
        )
    if query:
        return (
            f"{query[0]} looks like a query or a fragment of a URL, which no node understands; use "
            f"{path[: query.start()]}. The endpoint of s3:// is cluster.kubeflow.environment: "
            "{AWS_ENDPOINT_URL: http://host:9000}"
        )
    if scheme in _BUCKETS and not bucket:
        return f"names no bucket; use {scheme}://bucket/folder"
    if scheme in _BUCKETS and not _BUCKETS[scheme].fullmatch(bucket):
        return (
            f"{bucket.rpartition('@')[2]} is not a bucket name; use 3 to 63 lower-case letters, "
            "digits and hyphens"
        )
    return ""


def credential_refusals(there: PipelineConfig, profile: TargetConfig) -> dict[str, str]:
    """Return value -> error, which names only the field, for what looks like a credential.

    The compiled file would show them to everybody who sees the run.
    """
    section = profile.section
    whole = {
        section: profile.model_dump(mode="json", by_alias=True),
        **there.model_dump(mode="json", by_alias=True, exclude={"cluster", "features"}),
    }
    errors = dict[str, str]()
    for field, value in _texts("", whole):
        if any(value.startswith(each) for each in errors):
            continue  # made from the same field, such as output.folder from pipeline_root
        name, text, variable = "", value, "VARIABLE"
        if field.startswith(f"{section}.environment."):
            name = variable = field.rpartition(".")[2]
        elif ".options." in field and ".beam." in f".{field}":
            # An option of Beam, such as --s3_secret_access_key=...
            name, _, text = value.lstrip("-").partition("=")
            field = f"{field.rpartition('.')[0]}: --{name}"
        # The name of a key in Cloud KMS is not a secret.
        if not name.endswith("kms_key") and (reason := looks_secret(name, text)):
            fix = (
                "Put it into a Kubernetes Secret (kubectl create secret generic NAME "
                f"--from-literal=key=...), and let nodes read the variable of {section}.secrets: "
                f"{{NAME: {{key: {variable}}}}}"
                if isinstance(profile, KubeflowConfig)
                else "Leave it out, and let nodes read it from Secret Manager with their service "
                "account"
            )
            errors[value] = (
                f"{field}: {reason}, and the compiled file would show it to everybody who sees the "
                f"run. {fix}."
            )
    return errors


def _texts(field: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Yield the texts in a value with their dotted paths."""
    if isinstance(value, str):
        yield field, value
    items = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else items:
        yield from _texts(f"{field}.{key}" if field else str(key), each)
