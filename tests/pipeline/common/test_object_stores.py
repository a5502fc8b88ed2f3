"""Which file systems a text makes known; the S3 server itself is in tests/cluster."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import missing_buckets, register_file_systems

HAS_S3 = importlib.util.find_spec("tensorflow_io") is not None


def test_nothing_is_loaded_for_places_that_tensorflow_knows():
    before = set(sys.modules)
    register_file_systems("gs://bucket/root /home/me/output")
    assert {"boto3", "tensorflow_io"} & (set(sys.modules) - before) == set()


@pytest.mark.slow
def test_a_program_that_fails_on_s3_ends_with_its_own_error_and_code_1():
    """In a separate process: what is registered stays, and tensorflow-io's threads abort its end.

    TensorFlow's S3 client has been used, as in a node; one of the buckets is on the server.
    """
    import boto3
    from moto.server import ThreadedMotoServer

    code = """
        import os
        from pipeline.common.object_stores import missing_buckets, register_file_systems
        from pipeline.common.process_end import run_and_exit

        def main():
            register_file_systems("s3://bucket/root")
            print(missing_buckets("s3://there/x s3://absent/y"))
            print(os.environ["S3_ENDPOINT"])
            raise ValueError("what went wrong")

        run_and_exit(main)
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "nobody", "aws_secret_access_key": "nothing"}
    region = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint}
    try:
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="there")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **region, **{name.upper(): key for name, key in keys.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 1, done.stderr
    if HAS_S3:
        assert done.stderr.splitlines()[-1] == "ValueError: what went wrong"
        sentence, seen = done.stdout.splitlines()
        assert (sentence.partition(": ")[0], seen) == ("s3://absent", endpoint)
    else:
        assert "packages that are not installed here: tensorflow-io" in done.stderr


def test_packages_that_lack_are_named(monkeypatch):
    for module in ("boto3", "tensorflow_io"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ConfigError, match=r"not installed here: boto3, tensorflow-io.*tfx-largebatch\[s3\]"
    ):
        register_file_systems("s3://bucket")


def test_missing_buckets_are_named_and_those_that_give_no_answer_are_not(monkeypatch):
    def exists(path):
        if "no-answer" in path:
            raise OSError("no network")
        return path != "gs://absent/"

    monkeypatch.setattr("tensorflow.io.gfile.exists", exists)
    assert missing_buckets("gs://absent/a.csv s3://there/b gs://absent/c").startswith(
        "gs://absent: "
    )
    assert missing_buckets("gs://no-answer/a s3://there/b /home/me") == ""
