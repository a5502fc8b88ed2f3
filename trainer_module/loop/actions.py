"""Re-export callbacks under their former module and name, for existing programs."""

from trainer_module.loop.callbacks import *  # noqa: F403
from trainer_module.loop.callbacks import Callback as Action  # noqa: F401
