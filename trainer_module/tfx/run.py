"""TFX's entry point of the trainer: tfx.components.Trainer(run_fn="trainer_module.run_fn").

If `trainer.workers` is above 1 and TF_CONFIG names no workers, `run_fn` starts them on this
machine, as a test before a cluster is used: each process calls it with the same arguments and with
a TF_CONFIG. On a cluster the platform sets TF_CONFIG, and `workers` starts nothing.

`python -m trainer_module.tfx.run IN OUT` is one of a node's workers on this machine.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from shared_core.atomic_files import atomic_write_text
from trainer_module.baselines.baselines import write_baselines
from trainer_module.checks.batch import translate_tf_errors
from trainer_module.checks.warn_once import write_warnings
from trainer_module.common.progress import ProgressLines, attached, parse_line
from trainer_module.common.tensors import LossFunction
from trainer_module.config import TrainerConfig, trainer_settings
from trainer_module.data.input_pipeline import DataSummary, summarise
from trainer_module.devices.cluster import Cluster, cluster_of_environment
from trainer_module.devices.local_cluster import WorkersFailed, launch
from trainer_module.devices.multi_worker import worker_group
from trainer_module.devices.process import check_gpu_visible, prepare_process
from trainer_module.devices.strategies import (
    check_strategy,
    create_strategy,
    serve_until_chief_exits,
)
from trainer_module.loop.callback import FitResult
from trainer_module.model.data_context import TransformedData, unsized_ids
from trainer_module.model.plan import resolve
from trainer_module.tfx.data import open_data, split_files
from trainer_module.tfx.export import export_model, write_input_checks
from trainer_module.tfx.input_gradients import check_one_output
from trainer_module.tfx.label_names import label_names, write_label
from trainer_module.training.prepare import Folders, check_rows
from trainer_module.training.train import Trained, keras_set_up, train
from trainer_module.tuning.hyperparameters import with_hyperparameters

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

# The fields of TFX's FnArgs that run_fn reads; others hold functions, which are not serializable.
_ARGUMENTS = (
    *("train_files", "eval_files", "transform_output", "transform_graph_path", "schema_path"),
    *("serving_model_dir", "model_run_dir", "train_steps", "hyperparameters", "custom_config"),
)


def run_fn(fn_args: FnArgs) -> FitResult | None:
    """Train on Transform's output and export a SavedModel.

    All settings come from `fn_args.custom_config["trainer"]`, a `TrainerConfig` as JSON. TFX's
    `train_args.num_steps` is used only if it is above 0 and the configuration sets neither steps
    nor epochs (without it, 10 epochs). `eval_args` is ignored: every eval row is evaluated after
    each epoch.

    If the node has a Tuner's best hyperparameters, they replace the settings that they name
    (`optimizer.learning_rate`).

    If `fn_args.custom_config["baselines"]` names a split, the results of a constant and a linear
    model on its rows are written to `baselines.json` in the model_run folder. If
    `custom_config["input_gradients"]` is true, the export has the signature `input_gradients`.
    `custom_config["reading"]` is written to `assets.extra/reading.json` of the export.

    With several workers (see `create_strategy`) each calls this function with the same arguments.
    They train one model together, the chief writes, and all return when its export is complete. If
    `trainer.workers` is above 1 and TF_CONFIG names no workers, they are processes of this machine.
    With parameter servers, workers and servers run what the chief sends.

    Args:
        fn_args: TFX's FnArgs: train_files, eval_files, transform_output, model_run_dir,
            serving_model_dir, custom_config, hyperparameters.

    Returns:
        The result of the training; None on a parameter server, and on a worker with parameter
        servers.

    Raises:
        ValueError: A setting is wrong or does not fit the data. Raised before training starts.
        NonFiniteError: The loss or a gradient became NaN or infinite (see `non_finite`).
        Preempted: SIGTERM was received and a checkpoint was saved; a SystemExit with code 143.
        WorkerLost: One of several workers did not connect or was lost.
        ServerLost: A parameter server was lost.
        GpuMissing: `require_gpu` is set, and TensorFlow sees no GPU.
    """
    config = TrainerConfig.parse(trainer_settings(fn_args.custom_config))
    if getattr(fn_args, "hyperparameters", None):
        config = with_hyperparameters(config, fn_args.hyperparameters)
    cluster = cluster_of_environment()
    if (config.workers or 1) > 1 and cluster is None:
        return _train_on_local_workers(
            fn_args, config, log_dir=os.path.join(_run_dir(fn_args), "workers")
        )
    prepare_process(config)
    if config.require_gpu:
        check_gpu_visible(cluster)
    if cluster is not None and cluster.is_served:
        check_strategy(config.strategy)
        return _serve(cluster, config, fn_args.serving_model_dir)
    # Before anything uses TensorFlow, which starts its server for several workers at first use.
    strategy = create_strategy(
        config.strategy,
        logical_devices=config.logical_devices,
        start_timeout_seconds=config.start_timeout_seconds,
        worker_timeout_seconds=config.worker_timeout_seconds,
    )
    workers = worker_group(strategy)
    with workers.reporting_failures(), translate_tf_errors():
        workers.assert_same_on_all_workers("settings", config.model_dump(mode="json"))
        plan, data = resolve(config), open_data(fn_args, config)
        summary = summarise(data.train, id_features=unsized_ids(data))
        check_rows(config, summary)
        with keras_set_up(config):
            trained = train(
                plan,
                data,
                summary,
                strategy,
                folders=Folders(run=_run_dir(fn_args)),
                train_steps=getattr(fn_args, "train_steps", None),
                check_model=check_one_output if _with_gradients(fn_args) else None,
            )
            if workers.is_chief:
                _export(fn_args, trained, data, summary, loss=plan.loss)
            else:
                _join_export(trained, data)
        if workers.is_chief:
            _write_baselines(fn_args, config, trained, data, summary)
            write_warnings(_run_dir(fn_args))
        # TFX fails a worker whose serving folder is missing when it returns.
        workers.barrier("the chief's export is complete")
    return trained.result


def _serve(cluster: Cluster, config: TrainerConfig, serving_model_dir: str) -> None:
    """Return when the chief's export is complete; TFX checks for the export in each process."""
    exported = os.path.join(serving_model_dir, "saved_model.pb")
    if tf.io.gfile.exists(exported):  # from an earlier run: wait for the chief's exit
        serve_until_chief_exits(cluster, start_timeout_seconds=config.start_timeout_seconds)
        return
    serve_until_chief_exits(
        cluster,
        start_timeout_seconds=config.start_timeout_seconds,
        is_done=lambda: tf.io.gfile.exists(exported),
    )


def _with_gradients(fn_args: FnArgs) -> bool:
    return bool(fn_args.custom_config.get("input_gradients"))


def _export(
    fn_args: FnArgs,
    trained: Trained,
    data: TransformedData,
    summary: DataSummary,
    *,
    loss: LossFunction | None,
) -> None:
    label = data.layout.label if data.layout is not None else None
    names = None
    if label is not None:
        names = label_names(
            label,
            numbers=int(summary.label_max) + 1,
            transform_output=data.transform_output,
            loss=loss,
            raw_schema=getattr(fn_args, "schema_path", None),
        )
    export_model(
        trained.model,
        data.transform_output,
        fn_args.serving_model_dir,
        inputs=trained.inputs,
        label_scale=trained.label_scale,
        names=names,
        layout=data.layout,
        with_gradients=_with_gradients(fn_args),
    )
    if names is not None:
        write_label(fn_args.serving_model_dir, names)
    if data.layout is not None:
        write_input_checks(fn_args.serving_model_dir, data.layout)
    reading = fn_args.custom_config.get("reading")
    if reading:
        path = f"{fn_args.serving_model_dir}/assets.extra/reading.json"
        atomic_write_text(path, json.dumps(reading, indent=1))


def _write_baselines(
    fn_args: FnArgs,
    config: TrainerConfig,
    trained: Trained,
    data: TransformedData,
    summary: DataSummary,
) -> None:
    split = fn_args.custom_config.get("baselines")
    if split:
        files = split_files(fn_args, split)
        data = data._replace(eval_files=files)
        write_baselines(_run_dir(fn_args), data, summary, config, trained.inputs)


def _join_export(trained: Trained, data: TransformedData) -> None:
    """Join the chief in reading variables that are summed over replicas when read, if any.

    This worker also exports, to a temporary folder, so that it reads exactly what the chief reads.
    """
    on_read = tf.VariableSynchronization.ON_READ
    if any(v.value.synchronization == on_read for v in trained.model.variables):
        with tempfile.TemporaryDirectory(prefix="not-the-chief-") as folder:
            export_model(
                trained.model,
                data.transform_output,
                folder,
                inputs=trained.inputs,
                label_scale=trained.label_scale,
                layout=data.layout,
            )


def _run_dir(fn_args: FnArgs) -> str:
    return getattr(fn_args, "model_run_dir", None) or os.path.join(
        os.path.dirname(fn_args.serving_model_dir.rstrip("/")), "model_run"
    )


def _train_as_local_worker(arguments: str, result: str) -> None:
    """Call `run_fn` with the arguments in a JSON file; the chief writes its result to another."""
    logging.get_absl_logger().addHandler(ProgressLines(sys.stdout))
    logging.set_verbosity(logging.INFO)
    fn_args: Any = types.SimpleNamespace(**json.loads(Path(arguments).read_text()))
    trained = run_fn(fn_args)
    cluster = cluster_of_environment()
    # Tasks that serve a chief, as with parameter servers, have no result.
    if trained is not None and cluster is not None and cluster.number == 0:
        Path(result).write_text(json.dumps(trained._asdict()))


if __name__ == "__main__":
    _train_as_local_worker(*sys.argv[1:])


def _train_on_local_workers(fn_args: FnArgs, config: TrainerConfig, *, log_dir: str) -> FitResult:
    """Train by `run_fn` in several processes of this machine; return the chief's result.

    This process reports the chief's progress. Each worker's output is written to its log file.

    Raises:
        RuntimeError: A worker failed. The message has its number, its last lines and its log file.
    """
    workers = config.workers or 1
    servers = int(config.strategy == "parameter_server")
    local = "://" not in log_dir
    with tempfile.TemporaryDirectory(prefix="workers-") as folder:
        arguments, result = Path(folder, "arguments.json"), Path(folder, "result.json")
        arguments.write_text(
            json.dumps({name: getattr(fn_args, name, None) for name in _ARGUMENTS})
        )
        logs = Path(log_dir) if local else Path(tempfile.mkdtemp(prefix="worker-logs-"))
        logging.info("Training on %d workers of this machine; their logs are in %s", workers, logs)
        # So that workers find the user's modules.
        here = [os.getcwd(), *(os.path.abspath(entry) for entry in sys.path if entry != "")]
        try:
            launch(
                [
                    *(sys.executable, "-m", "trainer_module.tfx.run"),
                    *(str(arguments), str(result)),
                ],
                workers=workers,
                parameter_servers=servers,
                log_dir=logs,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(here)},
                on_line=functools.partial(_relay, "chief" if servers else "worker 0"),
            )
        except WorkersFailed as error:
            raise RuntimeError(f"training on {workers} workers of this machine: {error}") from None
        return FitResult(**json.loads(result.read_text()))


def _relay(chief: str, name: str, line: str) -> None:
    """Log a line of a worker; attach the chief's progress as records."""
    is_chief = name == chief
    if record := parse_line(line):
        if is_chief:
            text, progress = record
            logging.get_absl_logger().info(text, extra=attached(progress))
        return
    logging.log(logging.INFO if is_chief else logging.DEBUG, "[%s] %s", name, line)
