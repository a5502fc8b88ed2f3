"""encode: date. Parts of a date as ids, or as points on the circle; calendar.py has the parts.

With `cyclic`, a part p of period n becomes sin(2 pi p / n) and cos(2 pi p / n); missing is 0 and 0,
which no part is. With `elapsed`, the days since 1970 become a z-score; missing is 0, their mean.
"""

from __future__ import annotations

import math

import numpy as np

from transform.block import Block, IdCount, tf
from transform.encode.calendar import (
    PERIODS,
    Calendar,
    days_of,
    of_epoch,
    of_text,
    part_of,
    to_iso,
)
from transform.encode.encoder import Encoder, Inputs, Members, explain_nothing, option_of
from transform.scale.scaler import linear
from transform.spec.encoders import Date

_PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
_CYCLIC_SUFFIXES = ("_sin", "_cos")
_ELAPSED = "_elapsed"


def _apply(inputs: Inputs, members: Members) -> list[Block]:
    """Encode each group by its own options: one block for its texts, one for its ints."""
    blocks = []
    for resolved in members.resolved:
        option = option_of(resolved)
        texts = tuple(n for n in resolved.columns if inputs.types[n] == "string")
        numbers = tuple(n for n in resolved.columns if inputs.types[n] != "string")
        if texts:
            raw = inputs.dense.texts(texts)
            iso = raw if option.format is None else to_iso(raw, option.format)
            date = of_text(iso)
            given = tf.not_equal(raw, "")
            blocks += _count_unread(_blocks(texts, date, option), raw, given, date, texts)
        if numbers:
            raw = inputs.dense.numbers(numbers)
            if option.format is None:
                date = of_epoch(raw / _PER_SECOND[option.unit])
            else:
                date = of_text(to_iso(_digits(raw), option.format))
            given = tf.logical_not(tf.math.is_nan(raw))
            blocks += _count_unread(_blocks(numbers, date, option), raw, given, date, numbers)
    return blocks


def _count_unread(
    blocks: list[Block], raw: tf.Tensor, given: tf.Tensor, date: Calendar, names: tuple[str, ...]
) -> list[Block]:
    """Return the blocks, the first of which counts the values that were no date."""
    from transform.analyzers.counts import with_unread

    return [with_unread(blocks[0], raw, given, date.missing, names), *blocks[1:]]


def _blocks(names: tuple[str, ...], date: Calendar, option: Date) -> list[Block]:
    found = [_parts(names, date, option)] if option.parts else []
    return [*found, _elapsed(names, date)] if option.elapsed else found


def _elapsed(names: tuple[str, ...], date: Calendar) -> Block:
    """Return the time of `[batch, columns]` dates as a number."""
    from transform.analyzers.moments import column_statistics

    days = days_of(date)
    not_there = tf.fill(tf.shape(days), tf.constant(math.nan, tf.float64))
    fitted = column_statistics(tf.where(date.missing, not_there, days), name="elapsed_statistics")
    scaled = linear(days, fitted.mean, tf.sqrt(fitted.variance), fitted.varies)
    return Block(
        names=tuple(name + _ELAPSED for name in names),
        values=tf.cast(tf.where(date.missing, tf.zeros_like(scaled), scaled), tf.float32),
        sources=names,
        missing=date.missing,
        sizes=(None,) * len(names),
    )


def _digits(numbers: tf.Tensor) -> tf.Tensor:
    """Return 20130506.0 as "20130506", NaN as ""."""
    missing = tf.math.is_nan(numbers)
    whole = tf.cast(tf.where(missing, tf.zeros_like(numbers), numbers), tf.int64)
    return tf.where(missing, tf.constant(""), tf.strings.as_string(whole))


def _parts(names: tuple[str, ...], date: Calendar, option: Date) -> Block:
    """Return the parts of `[batch, columns]` dates, part by part."""
    outputs: list[str] = []
    values: list[tf.Tensor] = []
    sizes: list[IdCount | None] = []
    for part in option.parts:
        ids = part_of(date, part)
        period = PERIODS[part]
        if option.cyclic:
            angle = tf.cast(ids, tf.float64) * (2.0 * math.pi / period)
            for suffix, wave in zip(_CYCLIC_SUFFIXES, (tf.sin(angle), tf.cos(angle)), strict=True):
                outputs += [f"{name}_{part}{suffix}" for name in names]
                wave = tf.where(date.missing, tf.zeros_like(wave), wave)
                values.append(tf.cast(wave, tf.float32))
                sizes += [None] * len(names)
        else:
            outputs += [f"{name}_{part}" for name in names]
            values.append(tf.where(date.missing, np.int64(period), ids))
            sizes += [IdCount(period + 1)] * len(names)
    return Block(
        names=tuple(outputs),
        values=tf.concat(values, axis=1),
        sources=names * len(values),
        missing=tf.tile(date.missing, [1, len(values)]),
        sizes=tuple(sizes),
    )


def _endings(option: Date) -> list[str]:
    """Return `_hour`, or `_hour_sin` and `_hour_cos`; then `_elapsed`."""
    suffixes = _CYCLIC_SUFFIXES if option.cyclic else ("",)
    parts = [f"_{part}{suffix}" for part in option.parts for suffix in suffixes]
    return [*parts, _ELAPSED] if option.elapsed else parts


def _kind_of(option: Date, ending: str) -> str:
    if ending == _ELAPSED:
        return "elapsed"
    return "cyclic" if option.cyclic else "date"


DATE = Encoder(
    name="date",
    takes={"string": "ISO 8601", "int": "epoch"},
    reads="own type",
    apply=_apply,
    endings=_endings,
    kind_of=_kind_of,
    explain=explain_nothing,
    is_aspect=True,
)
