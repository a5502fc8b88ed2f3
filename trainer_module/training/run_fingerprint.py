"""The fingerprint of a configured run, which names its checkpoint folder."""

from __future__ import annotations

from trainer_module.common.code_fingerprint import code_digests
from trainer_module.common.json_values import Json
from trainer_module.config import TrainerConfig
from trainer_module.data.dataset_fingerprint import files_identity
from trainer_module.data.input_pipeline import DataSummary, Examples


def run_fingerprint(
    config: TrainerConfig, examples: Examples, summary: DataSummary
) -> dict[str, Json]:
    """Return what affects the run's result, except its length: settings, code, features, rows."""
    paths = [config.model_fn, config.loss, *(config.metrics or ())]
    modules = {path.rpartition(".")[0] for path in paths if path and "." in path}
    return {
        "trainer": config.fingerprint(),
        "code": code_digests(modules, without=["keras", "tensorflow", "trainer_module"]),
        "features": {
            name: f"{f.dtype.name}{list(f.shape)}" for name, f in examples.feature_spec.items()
        },
        "files": files_identity(examples.files),
        "rows": summary.rows,
    }
