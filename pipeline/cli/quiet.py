"""What libraries say when they are imported, left out."""

from __future__ import annotations

import logging
import os
import warnings


def quiet() -> None:
    """TensorFlow's greeting is no news to somebody who wants an answer."""
    import absl.logging  # here, so that `--help` answers at once

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", category=FutureWarning, module="google")
    # Beam says on import that a package for checksums lacks; it has others, which take longer.
    logging.getLogger().addFilter(lambda record: "crcmod" not in record.getMessage())
    # TFT, of Keras 2 in its own layers, which nothing here uses.
    absl.logging.get_absl_logger().addFilter(
        lambda record: "TF_USE_LEGACY_KERAS" not in record.getMessage()
    )
