"""Say what to change where a part of a step takes much of its time."""

from __future__ import annotations

from collections.abc import Mapping

# Part -> (share of the wall time from which it is a bottleneck, advice).
_ADVICE = {
    "reading": (
        0.2,
        "the step waits for its batches. Read fewer features, more and smaller files (they are "
        "read in parallel) or files without compression; use a smaller shuffle buffer, which is "
        "filled at the start of each epoch; do the work of dataset.map before training, and end "
        "the dataset with prefetch",
    ),
    "reduction over replicas": (
        0.2,
        "gradients are summed over replicas once per step. Raise global_batch_size, so that there "
        "are fewer steps, or use fewer replicas",
    ),
    "update": (
        0.3,
        "the optimizer runs once per step, whatever the number of rows. Raise global_batch_size, "
        "or use smaller embedding tables or an optimizer with less state",
    ),
    "host overhead": (
        0.3,
        "starting operations takes longer than computing them. Raise micro_batch_size and "
        "global_batch_size, and set expected_rows and steps_per_loop",
    ),
    "idle": (
        0.2,
        "threads wait, for other threads or for programs that use the same cores. Stop other "
        "programs, raise micro_batch_size, or use fewer replicas on this machine",
    ),
}
# From this share of the time, many micro-batches per window cost more than they save.
_WINDOW_SHARE = 0.6
_MANY_MICRO_BATCHES = 4
# Load per core from which other programs interrupt the step often.
_BUSY = 1.5


def find_hints(
    parts: Mapping[str, float], *, micro_batches: int, load: float, cores: int
) -> tuple[str, ...]:
    """Return one sentence per bottleneck, the largest first; none if the step mostly computes."""
    total = sum(parts.values())
    if not total > 0:
        return ()
    shares = {name: seconds / total for name, seconds in parts.items()}
    found = [
        (shares[name], f"{name} takes {shares[name]:.0%}: {advice}.")
        for name, (least, advice) in _ADVICE.items()
        if shares.get(name, 0.0) >= least
    ]
    if not found and micro_batches >= _MANY_MICRO_BATCHES:
        computing = shares["forward"] + shares["backward"]
        if computing >= _WINDOW_SHARE:
            found = [
                (
                    computing,
                    f"forward and backward take {computing:.0%} in {micro_batches} micro-batches: "
                    'if memory allows, raise micro_batch_size, or set it to "auto".',
                )
            ]
    busy = (
        f"this machine is busy (load {load:.0f} on {cores} cores), which makes all parts longer, "
        "above all host overhead and idle: profile again when it is not."
    )
    hints = tuple(sentence for _, sentence in sorted(found, reverse=True))
    return (busy, *hints) if load > _BUSY * cores else hints
