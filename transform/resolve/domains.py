"""A spec against the domains of a TFDV schema: the values that a column is known to have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from transform.resolve.output_columns import ResolvedGroup
from transform.spec.group import Group
from transform.spec.nearest import nearest

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


def check_domains(groups: Sequence[ResolvedGroup], schema: schema_pb2.Schema) -> None:
    """Refuses an encoder that is larger than its column's domain, or lists a value outside it.

    A domain that need not hold all values (`distribution_constraints.min_domain_mass` below 1)
    is no domain in this sense.

    Raises:
        ValueError: names the column, the group, and what fits.
    """
    features = {feature.name: feature for feature in schema.feature}
    shared = {domain.name: domain for domain in schema.string_domain}
    for resolved in groups:
        for name in resolved.columns:
            feature = features.get(name)
            if feature is None or (  # derived, or an open domain
                feature.HasField("distribution_constraints")
                and feature.distribution_constraints.min_domain_mass < 1.0
            ):
                continue
            where = f"group {resolved.group.name!r}: column {name!r}"
            if feature.HasField("int_domain"):
                _check_ints(resolved.group, where, feature.int_domain)
            else:
                domain = feature.string_domain
                if feature.domain in shared:
                    domain = shared[feature.domain]
                if domain.value:
                    _check_texts(resolved.group, where, list(domain.value))


def _check_texts(group: Group, where: str, domain: list[str]) -> None:
    if group.encode is None:
        return
    top_k, listed = _sizes(group)
    if top_k is not None and top_k > len(domain):
        raise ValueError(
            f"{where} has {len(domain)} values in the schema's domain, fewer than top_k={top_k}; "
            f"use top_k: {len(domain)}"
        )
    for value in listed:
        if value not in domain:
            raise ValueError(
                f"{where}: value {value!r} is not in the schema's domain; {nearest(value, domain)}"
            )


def _check_ints(group: Group, where: str, domain: schema_pb2.IntDomain) -> None:
    if group.encode is None or not domain.max:  # 0: no upper bound is given
        return
    span = domain.max - domain.min + 1
    top_k, listed = _sizes(group)
    size = group.encode.integer.size if group.encode.integer is not None else None
    if size is not None and size > domain.max + 1:
        raise ValueError(
            f"{where} goes up to {domain.max} in the schema's domain, and size={size} has ids for "
            f"more; use size: {domain.max + 1}"
        )
    if top_k is not None and top_k > span:
        raise ValueError(
            f"{where} has {span} values in the schema's domain, fewer than top_k={top_k}; "
            f"use top_k: {span}"
        )
    for value in listed:
        if not value.lstrip("-").isdigit() or not domain.min <= int(value) <= domain.max:
            raise ValueError(
                f"{where}: value {value!r} is not in the schema's domain; use an int of "
                f"{domain.min}..{domain.max}"
            )


def _sizes(group: Group) -> tuple[int | None, Iterable[str]]:
    """The number of learned values, and the listed ones."""
    assert group.encode is not None
    if group.encode.vocabulary is not None:
        return group.encode.vocabulary.top_k, ()
    if group.encode.one_hot is not None:
        return None, group.encode.one_hot.values
    if group.encode.multi_hot is not None:
        return group.encode.multi_hot.top_k, group.encode.multi_hot.values or ()
    return None, ()
