"""The cache of jars is complete or missing, and each jar has its known checksum."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.flink import flink_files, java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(flink_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv(flink_files.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert flink_files.cache_folder() == tmp_path / "tfx-largebatch" / "flink-1.19.3-beam-2.62.0"
    monkeypatch.setenv(flink_files.CACHE_VARIABLE, str(tmp_path / "mine"))
    assert flink_files.cache_folder() == tmp_path / "mine" / "flink-1.19.3-beam-2.62.0"


def test_without_java_and_maven_the_message_names_the_packages(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError) as caught:
        java.find_java()
    text = str(caught.value)
    assert "needs java and mvn, which are not there" in text
    assert "-jre-headless maven`" in text
    with pytest.raises(ConfigError, match="needs java and mvn"):
        flink_files.ensure_files(lambda text: None)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("printed", "version"),
    [('openjdk version "1.8.0_392"', "8"), ('openjdk version "25.0.1"', "25"), ("hello", "hello")],
)
def test_an_unsupported_java_is_rejected(printed, version, monkeypatch, tmp_path):
    program(tmp_path / "bin", "java", f"echo '{printed}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"is Java '?{version}'?: Flink needs Java 11 to 21"):
        java.find_java()


def test_java_home_comes_first(monkeypatch, tmp_path):
    file = program(tmp_path / "bin", "java", """echo 'openjdk version "17.0.15"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == str(file)


def test_a_failed_download_leaves_nothing_behind(cache, monkeypatch, tmp_path):
    """Maven's own error reaches the user; the next attempt starts over."""
    bin_folder = tmp_path / "bin"
    program(bin_folder, "mvn", "echo '[ERROR] Could not transfer artifact x'; exit 1")
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.setattr(flink_files, "fetch_flink", lambda folder: folder.mkdir())
    with pytest.raises(ConfigError, match=r"Maven could not fetch.*Could not transfer artifact x"):
        flink_files.ensure_files(lambda text: None)
    assert [file.name for file in cache.iterdir()] == [".flink-1.19.3-beam-2.62.0.lock"]


def test_a_jar_with_another_checksum_is_rejected(cache, tmp_path):
    files = flink_files.FlinkFiles(tmp_path / "files")
    files.flink.mkdir(parents=True)
    files.beam.mkdir(parents=True)
    (files.flink / "flink-dist-1.19.3.jar").write_text("not the jar")
    with pytest.raises(
        ConfigError, match=r"of 175 jars have another checksum than in flink_jars\.sha256"
    ):
        flink_files.check_files(files)


def test_the_cluster_has_flinks_own_jars_once(tmp_path):
    files = flink_files.FlinkFiles(tmp_path)
    for folder, names in (
        (files.flink, ["flink-dist-1.19.3.jar", "log4j-api-2.17.1.jar"]),
        (files.beam, ["beam-runners-flink-1.19-2.62.0.jar", "flink-core-1.19.0.jar"]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    names = [Path(jar).name for jar in files.cluster_class_path.split(":")]
    assert names == [
        "flink-dist-1.19.3.jar",
        "log4j-api-2.17.1.jar",
        "beam-runners-flink-1.19-2.62.0.jar",
    ]
