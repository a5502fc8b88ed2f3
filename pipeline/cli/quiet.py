"""Messages of libraries on import, suppressed."""

from __future__ import annotations

import logging
import os
import warnings


def quiet() -> None:
    """Suppress messages that do not matter to a user of a short command."""
    import absl.logging  # here, so that `--help` is fast

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    # Beam warns that a package for checksums is missing; it falls back to slower ones.
    logging.getLogger().addFilter(lambda record: "crcmod" not in record.getMessage())
    # TFT warns about Keras 2 in its layers, which nothing here uses.
    absl.logging.get_absl_logger().addFilter(
        lambda record: "TF_USE_LEGACY_KERAS" not in record.getMessage()
    )
