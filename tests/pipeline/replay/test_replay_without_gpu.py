"""A pipeline compiled for a GPU is replayed on a machine without one."""

from __future__ import annotations

import os

from pipeline.replay.in_image import runner_in_image
from pipeline.replay.node_command import NodeCommand, on_this_machine
from trainer_module.devices.gpu_check import REPLAY, check_gpu_visible

COMMAND = NodeCommand("Trainer", "image:1", ("python", "-m", "anything"), {}, {"HOME": "/nowhere"})


def test_a_replay_trains_without_the_gpu_of_the_platform(monkeypatch, caplog):
    monkeypatch.setenv(REPLAY, on_this_machine(COMMAND).env[REPLAY])
    check_gpu_visible()
    assert "this replay trains on the CPU" in caplog.text


def test_a_replay_in_an_image_does_as_well(tmp_path, monkeypatch):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 0\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    started = runner_in_image("image:1", builder="docker", root=tmp_path)(COMMAND)
    assert f"--env={REPLAY}" in started.words
    assert started.env[REPLAY] == "1"
