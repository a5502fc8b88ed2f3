"""Take windows on parameter-server workers: each window is exact, and their order is undefined."""

from __future__ import annotations

import collections
import contextlib
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from trainer_module.checks.batch import check_batch
from trainer_module.checks.compiled import is_several
from trainer_module.checks.model import computes_in_float16
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.tensors import (
    Gradient,
    LossLike,
    Tensors,
    Variable,
    VariableValues,
    present_leaves,
    with_leaves,
)
from trainer_module.devices.cluster import cluster_of_environment
from trainer_module.options.step_options import StepOptions
from trainer_module.step.reports import LoopReport, ServerLost, StepReport, non_finite_error
from trainer_module.step.setup import StepSetup
from trainer_module.step.state import StepCounters
from trainer_module.window.spec import Batch, StepInputs, unpack_batch
from trainer_module.window.update import Update, mean_gradients, window_update

_UNDER_WAY_PER_WORKER = 3
_NEEDS_AN_ORDER = {
    "ema_momentum": "updates have no order, so there is no moving average",
    "clip_per_example": (
        "the gradients of rows are computed from the variables of one model, not from a copy of "
        "the servers'; clip_norm is supported"
    ),
    "gradient_noise_scale": "windows have no order to average over",
}


class _Pair(NamedTuple):
    """A variable of the chief, and the one on a server."""

    here: Variable
    there: Variable


class _ServerVariables:
    """The variables of a model and its optimizer on the servers.

    Attributes:
        optimizer: A copy of the chief's optimizer with variables on the servers.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.ParameterServerStrategy,
    ) -> None:
        """Create the servers' variables with the values of the chief's variables."""
        _check(optimizer)
        with strategy.scope():
            self._model = [_Pair(v, _copy(v)) for v in model.variables]
            there = {id(pair.here): pair.there for pair in self._model}
            self._trained = [there[id(variable)] for variable in model.trainable_variables]
            self.optimizer = type(optimizer).from_config(optimizer.get_config())
            self.optimizer.build(self._trained)
        slots = zip(optimizer.variables, self.optimizer.variables, strict=True)
        self._all = [*self._model, *(_Pair(*pair) for pair in slots)]
        for pair in self._all:
            pair.there.value.assign(pair.here.numpy())
        self._seen = [np.array(pair.here.numpy()) for pair in self._all]
        self._read_all = tf.function(
            lambda: [_read(pair.there) for pair in self._all], autograph=False
        )

    def values(self) -> VariableValues:
        """Return the values of the model's variables; call it in a graph.

        Each value is a copy that is read once from the servers.
        """
        return [(pair.here, _read(pair.there)) for pair in self._model]

    def apply(self, gradients: Sequence[Gradient], iterations: tf.Tensor) -> None:
        """Update the servers' variables; call it inside `strategy.run`.

        A gradient that is None leaves its variable unchanged. `iterations`, the number of updates
        before this one, replaces the optimizer's counter: Keras reads, increments and assigns the
        counter, so one of two simultaneous updates would not be counted. The chief sets the
        counter.
        """
        updates = [
            (tf.cast(gradient, variable.dtype), variable)
            for gradient, variable in zip(gradients, self._trained, strict=True)
            if gradient is not None
        ]
        counter = self.optimizer.iterations
        scope = keras.StatelessScope([(counter, iterations)], initialize_variables=False)
        with scope:
            self.optimizer.apply([g for g, _ in updates], [v for _, v in updates])
        for _, variable in updates:  # values that a constraint has assigned
            value = scope.get_current_value(variable)
            if value is not None:
                variable.value.assign(value)

    def push(self) -> None:
        """Write variables to the servers that changed on the chief since the last `pull`."""
        for number, pair in enumerate(self._all):
            value = pair.here.numpy()
            if not np.array_equal(value, self._seen[number]):
                pair.there.value.assign(value)
                self._seen[number] = np.array(value)

    def pull(self) -> None:
        """Read all variables except the optimizer's counter from the servers to the chief."""
        for number, (pair, value) in enumerate(zip(self._all, self._read_all(), strict=True)):
            if pair.there is not self.optimizer.iterations:
                pair.here.value.assign(value)
                self._seen[number] = value.numpy()


def _check(optimizer: keras.optimizers.Optimizer) -> None:
    if is_several(optimizer):
        raise ValueError(
            f"optimizer {optimizer.name!r} contains other optimizers, which parameter servers do "
            "not support: use one optimizer for all variables."
        )
    if isinstance(optimizer, keras.optimizers.Nadam):
        raise ValueError(
            "Nadam keeps a product over steps, which it reads, multiplies and assigns, so one of "
            "two simultaneous factors would be lost; use Adam or AdamW."
        )
    if getattr(optimizer, "_exclude_from_weight_decay_pattern", None) or getattr(
        optimizer, "_exclude_from_weight_decay", None
    ):
        raise ValueError(
            f"optimizer {optimizer.name!r} excludes variables from weight decay by name, and the "
            "names differ on parameter servers: leave exclude_from_weight_decay out."
        )


def _copy(variable: Variable) -> Variable:
    copy = keras.Variable(
        variable.numpy(), dtype=variable.dtype, trainable=variable.trainable, name=variable.name
    )
    copy.constraint = variable.constraint
    return copy


def _read(variable: Variable) -> tf.Tensor:
    """Read without the casts of a dtype policy, and copy, so that a window uses one value."""
    return tf.identity(variable.value)


class ParameterServerStep:
    """A `Step` that distributes windows over workers, which run asynchronously.

        for window k (in no order):  v = the servers' variables, read once
                                     g = the exact gradient of the whole window at v
                                     update the servers' variables by g, as step k

    The guarantees differ from those of other strategies. Each global batch is read once and becomes
    one window and one update, with the learning rate of its step number. The gradient of a window
    is exact for any micro-batch size. But the variables change while a worker computes, by as many
    updates as there are other workers, and runs are not reproducible. If a worker is lost during an
    update, the servers keep the part of the update that it made, and another worker takes the
    window again.

    Each `run` ends by updating the chief's model and optimizer. They are evaluated, checkpointed
    and exported, and the next run starts from them.

    Example:
        strategy = create_strategy("parameter_server")    # workers and servers block in this call
        step = ParameterServerStep(model, optimizer, "mse", micro_batch_size=64, cluster=strategy)
        TrainingLoop(step, dataset.batch(256), epochs=3).fit()
    """

    @naming_replacements(*StepOptions.model_fields)
    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss_fn: LossLike,
        *,
        cluster: tf.distribute.ParameterServerStrategy,
        **options: Any,
    ) -> None:
        """Check the options and create the variables on the servers.

        Args:
            model: A built Keras model of the chief, created outside of the strategy's scope.
            optimizer: A Keras optimizer, created outside of the strategy's scope.
            loss_fn: See `TrainStep`.
            cluster: The strategy of chief, workers and servers.
            **options: The fields of `StepOptions`, except `ema_momentum`, `clip_per_example`
                and `gradient_noise_scale`. `jit_compile` is off unless it is true, because the
                chief does not know the workers' devices.

        Raises:
            ValueError: See `TrainStep`. Also, an option requires ordered steps.
        """
        for name, why in _NEEDS_AN_ORDER.items():
            value = options.get(name)
            if value is not None:
                raise ValueError(f"{name}={value!r} with parameter servers: {why}; leave it out.")
        if options.get("batch_norm") == "ghost":
            raise ValueError(
                "batch_norm='ghost' with parameter servers: windows have no order in which to "
                "average moving statistics; use batch_norm='frozen' or another strategy."
            )
        if computes_in_float16(model):
            raise ValueError(
                "mixed_float16 with parameter servers: the loss scale changes from step to step, "
                "and steps have no order here; use mixed_bfloat16 or float32."
            )
        # The strategy of what the chief computes: evaluation and the checks of a step.
        self.strategy = tf.distribute.get_strategy()
        options["jit_compile"] = options.get("jit_compile") is True
        self._setup = StepSetup(model, optimizer, loss_fn, options, self.strategy)
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = self._setup.spec.loss_fn
        self.options = self._setup.options
        self._counters = StepCounters()
        self.step = self._counters.step
        tasks = cluster_of_environment()
        assert tasks is not None, "the strategy was made from TF_CONFIG"
        self._workers = len(tasks.addresses["worker"])
        self._servers = tasks.addresses["ps"]
        self._cluster = cluster
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(cluster)
        self._variables_there = _ServerVariables(model, optimizer, cluster)
        self._functions: dict[Hashable, Callable[..., StepReport]] = {}

    def run(
        self,
        iterator: Iterator[Tensors],
        num_steps: int,
        *,
        loss_sums: Sequence[float] = (0.0, 0.0),
    ) -> LoopReport:
        """Take up to `num_steps` windows, and return when all of them are done.

        Args:
            iterator: An iterator over a tf.data.Dataset of global batches, which the chief reads.
            num_steps: Number of windows to take.
            loss_sums: See `TrainStep.run`.

        Raises:
            NonFiniteError: A window was not finite; see `TrainStep`. The windows that were already
                scheduled are completed, so the variables are those of later steps.
            ServerLost: A parameter server is lost.
        """
        self._setup.check_variables()
        try:
            self._variables_there.push()
            done, exhausted = self._take(iterator, num_steps)
            self._variables_there.pull()
        except tf.errors.OpError as error:
            raise self._as_server_lost(error) from error
        return self._count_all(done, exhausted, loss_sums)

    @property
    def skipped(self) -> dict[str, int]:
        """The number of windows that updated nothing, by reason."""
        return self._counters.skipped

    def state(self) -> list[tf.Variable]:
        """Return the variables to checkpoint in addition to those of model and optimizer."""
        return self._counters.state()

    @property
    def averages(self) -> Sequence[tf.Variable]:
        """Empty: without an order of updates there is no moving average."""
        return ()

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that does not change the model."""
        return contextlib.nullcontext()

    def use_averages(self) -> None:
        """Do nothing, because there are no averages."""

    def _take(
        self, iterator: Iterator[Tensors], num_steps: int
    ) -> tuple[list[StepReport | None], bool]:
        """Schedule windows, at most three per worker at a time, and wait for all of them."""
        first_step, first_update = int(self.step.numpy()), int(self.optimizer.iterations.numpy())
        under_way: collections.deque[tf.distribute.experimental.coordinator.RemoteValue] = (
            collections.deque()
        )
        done: list[StepReport | None] = []
        exhausted = failed = False
        for number in range(num_steps):
            batch = next(iterator, None)
            if batch is None:
                exhausted = True
                break
            under_way.append(self._schedule(batch, first_step + number, first_update + number))
            if len(under_way) >= _UNDER_WAY_PER_WORKER * self._workers:
                done.append(_fetched(under_way.popleft()))
                failed = done[-1] is not None and bool(done[-1].failed)
            if failed:
                break
        self._coordinator.join()
        return done + [_fetched(value) for value in under_way], exhausted

    def _schedule(
        self, batch: Tensors, step: int, update: int
    ) -> tf.distribute.experimental.coordinator.RemoteValue:
        batch = unpack_batch(batch)
        check_batch(*batch)
        self._setup.check_rows(batch)
        tensors = [tf.convert_to_tensor(tensor) for tensor in present_leaves(batch)]
        shapes = tuple((t.dtype, tuple(t.shape[1:])) for t in tensors)
        structure = with_leaves(batch, [True] * len(tensors))
        key = (str(structure), shapes)
        if key not in self._functions:
            self._setup.describe(batch)
            self._functions[key] = self._function(structure, tensors)
        numbers = (tf.constant(step, tf.int64), tf.constant(update, tf.int64))
        return self._coordinator.schedule(self._functions[key], args=(*numbers, *tensors))

    def _function(self, structure: Batch, tensors: list[tf.Tensor]) -> Callable[..., StepReport]:
        def window(step: tf.Tensor, update: tf.Tensor, *tensors: tf.Tensor) -> StepReport:
            return self._window_on_worker(step, update, with_leaves(structure, tensors))

        specs = [tf.TensorSpec([], tf.int64)] * 2
        specs += [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in tensors]
        return tf.function(window, specs, autograph=False)

    def _window_on_worker(
        self, step: tf.Tensor, update_number: tf.Tensor, batch: Batch
    ) -> StepReport:
        inputs = StepInputs(random_position=(step, 0), values=self._variables_there.values())

        def on_worker() -> Update:
            passes = self._setup.passes(batch)
            sums = passes.sum(passes.split(batch, inputs), inputs)
            mean = mean_gradients(sums, self.model, values=inputs.values)
            return window_update(mean, sums, sums, self.model, self.options, inputs)

        update = self._cluster.run(on_worker)
        applied = update.is_applied

        def apply() -> tf.Tensor:
            self._cluster.run(self._variables_there.apply, args=(update.gradients, update_number))
            return tf.constant(0)

        tf.cond(applied, apply, lambda: tf.constant(0))
        return StepReport(
            loss=update.loss,
            gradient_norm=update.gradient_norm,
            weight_sum=update.weight_sum,
            rows=update.rows,
            applied=applied,
            failed=tf.logical_and(update.is_rejected, self.options.non_finite == "raise"),
            finite=update.finite,
            finite_by_replica=update.finite_here[tf.newaxis],
        )

    def _count_all(
        self, done: list[StepReport | None], exhausted: bool, loss_sums: Sequence[float]
    ) -> LoopReport:
        """Update the counters on the chief, where no count is lost, and return the report."""
        known = [one for one in done if one is not None]
        if len(known) < len(done):
            logging.warning(
                "%d windows were computed by workers that were lost later: their loss is unknown.",
                len(done) - len(known),
            )
        failed = [one for one in known if one.failed]
        applied = [one for one in known if one.applied]
        empty = sum(float(one.weight_sum) == 0 for one in known)
        steps = len(done) - len(failed)
        not_finite = len(known) - len(applied) - empty - len(failed)
        self.step.assign_add(steps)
        self._counters.empty.assign_add(empty)
        self._counters.non_finite.assign_add(not_finite)
        self.optimizer.iterations.value.assign_add(steps - empty - not_finite)
        if failed:
            raise non_finite_error(failed[0], self._setup.variables, int(self.step.numpy()))
        weights = sum(float(one.weight_sum) for one in applied)
        loss = sum(float(one.loss) * float(one.weight_sum) for one in applied)
        return LoopReport(
            steps=steps,
            loss=loss / weights if weights else float("nan"),
            loss_sums=(loss_sums[0] + loss, loss_sums[1] + weights),
            gradient_norm=float(known[-1].gradient_norm) if known else 0.0,
            rows=int(sum(float(one.rows) for one in known)),
            exhausted=exhausted,
        )

    def _as_server_lost(self, error: tf.errors.OpError) -> BaseException:
        """Return a `ServerLost` error if a server is lost, else the given error."""
        found = re.search(r"/job:ps/replica:0/task:(\d+)", str(error))
        gone = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        if found is None or not isinstance(error, gone):
            return error
        number = int(found[1])
        return ServerLost(
            f"parameter server {number} ({self._servers[number]}) is lost after step "
            f"{int(self.step.numpy())}, together with its variables"
        )


def _fetched(value: tf.distribute.experimental.coordinator.RemoteValue) -> StepReport | None:
    """Wait for a window and return its results; None if its worker was lost after computing it."""
    try:
        return value.fetch()
    except tf.errors.OpError as error:
        logging.info("A window's report is lost: %s", error)
        return None
