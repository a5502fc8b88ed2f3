"""An argument in a message of a lower room becomes the setting of the configuration."""

from __future__ import annotations

import errno

import pytest

from trainer_module.options.setting_names import setting_names, to_setting_names


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("strategy='tpu': no TPU found", "trainer.strategy='tpu': no TPU found"),
        ("set workers=2, not workers=1", "set trainer.workers=2, not trainer.workers=1"),
        (
            "it is silent (worker_timeout_seconds=4)",
            "it is silent (trainer.worker_timeout_seconds=4)",
        ),
        ("weight='w' is 0 in all rows", "trainer.weight='w' is 0 in all rows"),
        ('set non_finite="skip"', 'set trainer.non_finite="skip"'),
        ("write Evaluation(metrics=[auc])", "write Evaluation(metrics=[auc])"),
        (
            "set require_gpu=False.",
            "set trainer.require_gpu: false, or remove `accelerator` from the Trainer's resources.",
        ),
        ("trainer.workers=2", "trainer.workers=2"),
        ("my_strategy='x' and a strategy", "my_strategy='x' and a strategy"),
        (
            "give another directory for checkpoints, or delete it",
            "give another directory for checkpoints (trainer.checkpoint_dir), or delete it",
        ),
    ],
)
def test_a_message_names_settings(text, named):
    assert to_setting_names(text) == named


@pytest.mark.parametrize(
    "error", [ValueError("workers=0: use 1"), OSError(errno.EIO, "workers=0: use 1")]
)
def test_an_error_keeps_its_type_and_names_settings(error):
    @setting_names("training")
    def fails():
        raise error

    with pytest.raises(type(error), match=r"training\.workers=0: use 1") as raised:
        fails()
    assert raised.value is error
    assert getattr(error, "errno", errno.EIO) == errno.EIO
