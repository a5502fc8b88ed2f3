"""The entry for TFX's own command line: one file that builds the pipeline and runs it locally.

    tfx pipeline create --engine local --pipeline_path pipeline/local_runner.py
    tfx run create --engine local --pipeline_name chicago-taxi

TFX_LARGEBATCH_CONFIG names the YAML; without it, it is the taxi example's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Runs the configured pipeline.

    Returns:
        The exit code of a run: see `pipeline.common.exit_codes`.

    Raises:
        ConfigError: the configuration or the data is wrong.
    """
    # The file is run by its path, so its own folder, not the project's, is on sys.path.
    sys.path.insert(0, str(_ROOT))
    from pipeline.config.config_file import load_config
    from pipeline.run.runner import add_import_paths, run

    file = Path(os.environ.get("TFX_LARGEBATCH_CONFIG") or _ROOT / "examples/taxi/pipeline.yaml")
    add_import_paths(file)
    return run(load_config(file)).code


if __name__ == "__main__":
    sys.exit(main())
