"""The places that a pipeline reads and writes at a target, and those that no node can use."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import NamedTuple

from components.arrow_example_gen.spans import check_pattern, has_placeholders
from pipeline.config.cluster import KubeflowConfig, TargetConfig
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote

_BUCKETS = {
    "gs": re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])"),
    "s3": re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])"),
}
# TensorFlow and Beam list no files there, or each pod has its own.
_NO_STORES = ("file", "ftp", "ftps", "http", "https", "ram")
# In data paths `?` is also a wildcard: `rows-?.csv`.
_QUERY = re.compile(r"[?#].*")
_QUERY_OF_GLOB = re.compile(r"\?[\w.-]+=.*|#.*")


class _Place(NamedTuple):
    """A path of the configuration at the target.

    Attributes:
        field: The field that sets it.
        path: The path.
        fix: The place to give instead of a path of this machine.
    """

    field: str
    path: str
    fix: str


def places(there: PipelineConfig, profile: TargetConfig) -> list[_Place]:
    """Return the paths that nodes use."""
    section = profile.section
    remote = "use gs://, s3:// or another place that tf.io.gfile knows"
    found = [_Place(f"{section}.pipeline_root", profile.pipeline_root, remote)]
    for name, own, path in (
        ("data.path", "data_path", there.data.path),
        ("data.eval_path", "eval_path", there.data.eval_path),
        ("schema.path", "schema_path", there.data_schema.path),
    ):
        field = f"{section}.{own}" if getattr(profile, own) else name
        found.append(_Place(field, path or "", f"name a remote place as {section}.{own}"))
    push = there.serving.push_folder or ""
    found.append(_Place("serving.push_folder", push, "name a remote folder"))
    if isinstance(profile, KubeflowConfig):
        model = profile.baseline_model or ""
        found.append(_Place(f"{section}.baseline_model", model, "copy it to a remote place"))
    return [place for place in found if place.path]


def place_refusals(there: PipelineConfig, profile: TargetConfig) -> Iterator[str]:
    """Yield the places that nodes cannot use, one sentence each."""
    for field, path, fix in places(there, profile):
        scheme, separator, rest = path.partition("://")
        bucket = rest.partition("/")[0]
        is_glob = field.endswith(("data_path", "eval_path", "data.path"))
        query = (_QUERY_OF_GLOB if is_glob else _QUERY).search(path)
        if path.startswith(PACKAGE_SCHEME):
            yield (
                f"{field}={path}: a file inside a Python package of this machine; copy it to a "
                f"place that the cluster reads and {fix}."
            )
        elif not is_remote(path):
            yield f"{field}={path}: a path of this machine, which no pod has; {fix}."
        elif scheme.lower() in _NO_STORES:
            yield (
                f"{field}={path}: nodes cannot read or write {scheme}:// places; copy it to a "
                "bucket and use gs://bucket/folder or s3://bucket/folder."
            )
        elif query:
            yield (
                f"{field}={path}: {query[0]} looks like a query or a fragment of a URL, which no "
                f"node understands; use {path[: query.start()]}. The endpoint of s3:// is "
                "cluster.kubeflow.environment: {AWS_ENDPOINT_URL: http://host:9000}."
            )
        elif separator and scheme in _BUCKETS and not bucket:
            yield f"{field}={path}: names no bucket; use {scheme}://bucket/folder."
        elif separator and scheme in _BUCKETS and not _is_bucket(scheme, bucket):
            yield (
                f"{field}={path}: {bucket.rpartition('@')[2]} is not a bucket name; use 3 "
                "to 63 lower-case letters, digits and hyphens."
            )
        try:
            check_pattern(path)
        except ValueError as error:
            yield f"{field}={error}."
    # The YAML's paths were compared at load time, and a profile may replace one of them.
    data = there.data
    if data.eval_path and has_placeholders(data.path) != has_placeholders(data.eval_path):
        section = profile.section
        yield (
            f"{section}: data.path={data.path} and data.eval_path={data.eval_path} there: "
            "{SPAN} or a date is in one of them alone; put it into both, as "
            f"{section}.data_path and {section}.eval_path."
        )


def _is_bucket(scheme: str, bucket: str) -> bool:
    try:
        ipaddress.ip_address(bucket)
        return False
    except ValueError:
        pass
    # With dots, Google's names may have 222 characters, 63 per part.
    longest = 222 if scheme == "gs" and "." in bucket else 63
    parts = bucket.split(".")
    return (
        bool(_BUCKETS[scheme].fullmatch(bucket))
        and 3 <= len(bucket) <= longest
        and all(0 < len(part) <= 63 for part in parts)
    )
