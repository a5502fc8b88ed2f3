"""Whether a spec fits the data, asked of a TFDV schema before anything runs.

Its domains, the values that a column is known to have, are asked too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from shared_core.nearest import nearest_column
from transform.encode.encoder import Known, option_of
from transform.encode.table import ENCODERS
from transform.resolve.select import resolve
from transform.spec.common import column_types
from transform.spec.features import FeatureSpec
from transform.spec.group import ResolvedGroup

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


def check_spec(spec: FeatureSpec, schema: schema_pb2.Schema) -> tuple[ResolvedGroup, ...]:
    """Raise ValueError unless the spec fits data of this TFDV schema.

    With `derive`, the function is traced on placeholders (this imports TensorFlow) to learn which
    columns it makes.

    Args:
        spec: The `features:` section.
        schema: What is known of the raw columns.

    Returns:
        The columns of each group.

    Raises:
        ValueError: A column that the data lacks, one of a type that its group cannot take, one with
            several values per row, one in two groups, a pattern without a match; a vocabulary
            larger than the schema's domain, a value outside it; or `derive` cannot be imported or
            fails.
    """
    types = column_types(schema)
    if spec.derive is not None:
        from transform.columns.derive import derived_types

        types = {**types, **derived_types(spec.derive, schema)}
    groups = resolve(spec, types)
    _check_domains(groups, schema)
    return groups


def _check_domains(groups: Sequence[ResolvedGroup], schema: schema_pb2.Schema) -> None:
    """Refuse an encoder that is larger than its column's domain, or lists a value outside it.

    A domain that need not hold all values (`distribution_constraints.min_domain_mass` below 1)
    is no domain in this sense.
    """
    domains = _closed_domains(schema)
    for resolved in groups:
        if resolved.group.encode is None:
            continue
        known = ENCODERS[resolved.group.kind].known(option_of(resolved))
        where = f"group {resolved.group.name!r}"
        found = {f"{where}: column {n!r}": domains[n] for n in resolved.columns if n in domains}
        if resolved.group.share:
            # Any of the columns may have a value: one with an open domain has all of them.
            closed = len(found) == len(resolved.columns)
            found = {f"{where} (share: true)": _union(found.values())} if closed else {}
        for place, domain in found.items():
            if isinstance(domain, range):
                _check_ints(known, place, domain)
            else:
                _check_texts(known, place, domain)


def _closed_domains(schema: schema_pb2.Schema) -> dict[str, range | list[str]]:
    """Return column -> its ints or texts, of the columns that can have no other."""
    shared = {domain.name: domain for domain in schema.string_domain}
    found: dict[str, range | list[str]] = {}
    for feature in schema.feature:
        if (
            feature.HasField("distribution_constraints")
            and feature.distribution_constraints.min_domain_mass < 1.0
        ):
            continue
        if feature.HasField("int_domain"):
            if feature.int_domain.max:  # 0: no upper bound is given
                found[feature.name] = range(feature.int_domain.min, feature.int_domain.max + 1)
        elif values := shared.get(feature.domain, feature.string_domain).value:
            found[feature.name] = list(values)
    return found


def _union(domains: Collection[range | list[str]]) -> range | list[str]:
    """Return the values of domains of one type."""
    ranges = [domain for domain in domains if isinstance(domain, range)]
    if ranges:
        return range(min(r.start for r in ranges), max(r.stop for r in ranges))
    return list(dict.fromkeys(str(value) for domain in domains for value in domain))


def _check_texts(known: Known, where: str, domain: list[str]) -> None:
    top_k = known.top_k
    if top_k is not None and top_k > len(domain):
        raise ValueError(
            f"{where} has {len(domain)} values in the schema's domain, fewer than top_k={top_k}; "
            f"use top_k: {len(domain)}"
        )
    for value in known.values:
        if value not in domain:
            raise ValueError(
                f"{where}: value {value!r} is not in the schema's domain; "
                f"{nearest_column(value, domain)}"
            )


def _check_ints(known: Known, where: str, domain: range) -> None:
    span = len(domain)
    top_k, size = known.top_k, known.size
    if size is not None and size > domain.stop:
        raise ValueError(
            f"{where} goes up to {domain.stop - 1} in the schema's domain, and size={size} has ids "
            f"for more; use size: {domain.stop}"
        )
    if top_k is not None and top_k > span:
        raise ValueError(
            f"{where} has {span} values in the schema's domain, fewer than top_k={top_k}; "
            f"use top_k: {span}"
        )
    for value in known.values:
        if not value.lstrip("-").isdigit() or int(value) not in domain:
            raise ValueError(
                f"{where}: value {value!r} is not in the schema's domain; use an int of "
                f"{domain.start}..{domain.stop - 1}"
            )
