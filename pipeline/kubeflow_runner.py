"""The entry for TFX's own command line: one file that compiles the pipeline for Vertex or Kubeflow.

    tfx pipeline compile --engine vertex --pipeline_path pipeline/kubeflow_runner.py
    tfx pipeline create --engine vertex --pipeline_path pipeline/kubeflow_runner.py
    tfx run create --engine vertex --pipeline_name chicago-taxi --project NAME --region REGION

TFX_LARGEBATCH_CONFIG names the YAML; without it, it is the taxi example's. TFX_LARGEBATCH_TARGET=
kubeflow compiles for Kubeflow by the same engine: `--engine kubeflow` cannot be imported since
TFX 1.16, which has no runner for KFP 1 any more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_TARGET_VARIABLE = "TFX_LARGEBATCH_TARGET"
_ROOT = Path(__file__).resolve().parent.parent


def main() -> str:
    """Writes what `python -m pipeline compile` writes, to where TFX's command line wants it.

    Returns:
        "", or what is wrong with the configuration: `sys.exit` takes it.
    """
    # The file is run by its path, so its own folder, not the project's, is on sys.path.
    sys.path.append(str(_ROOT))
    from pipeline.common.errors import ConfigError

    try:
        print(f"{_compiled()} written.")
    except ConfigError as error:
        return str(error)
    return ""


def _compiled() -> Path:
    from pipeline.common.errors import ConfigError
    from pipeline.config.config_file import load_config
    from pipeline.run.runner import add_import_paths
    from pipeline.targets.compile import compile_pipeline, file_name, profile_of
    from pipeline.targets.spec import dag_runner

    file = Path(os.environ.get("TFX_LARGEBATCH_CONFIG") or _ROOT / "examples/taxi/pipeline.yaml")
    target = os.environ.get(_TARGET_VARIABLE) or "vertex"
    if target not in ("kubeflow", "vertex"):
        raise ConfigError(f"{_TARGET_VARIABLE}={target}: use kubeflow or vertex.")
    add_import_paths(file)
    config = load_config(file)
    name = file_name(config, target)
    runner = dag_runner(profile_of(config, target), output_filename=name)
    # What `tfx` does to a runner before it runs, such as another image or folder, reaches this one.
    text = compile_pipeline(config, target, runner=runner)
    path = Path(runner._output_dir, runner._output_filename)
    if target == "kubeflow" and path.name != name:
        raise ConfigError(
            f"{_TARGET_VARIABLE}=kubeflow: what `tfx pipeline create` keeps, `tfx run create` "
            "sends to Vertex; use `tfx pipeline compile`, and then "
            "`python -m pipeline submit --spec`."
        )
    path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main() or 0)
