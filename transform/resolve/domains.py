"""A spec against the domains of a TFDV schema: the values that a column is known to have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared_core.nearest import nearest_column
from transform.columns.grouped import ResolvedGroup
from transform.encode.encoder import Known, option_of
from transform.encode.table import ENCODERS

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


def check_domains(groups: Sequence[ResolvedGroup], schema: schema_pb2.Schema) -> None:
    """Refuse an encoder that is larger than its column's domain, or lists a value outside it.

    A domain that need not hold all values (`distribution_constraints.min_domain_mass` below 1)
    is no domain in this sense.

    Raises:
        ValueError: names the column, the group, and what fits.
    """
    features = {feature.name: feature for feature in schema.feature}
    shared = {domain.name: domain for domain in schema.string_domain}
    for resolved in groups:
        if resolved.group.encode is None:
            continue
        known = ENCODERS[resolved.group.kind].known(option_of(resolved))
        for name in resolved.columns:
            feature = features.get(name)
            if feature is None or (  # derived, or an open domain
                feature.HasField("distribution_constraints")
                and feature.distribution_constraints.min_domain_mass < 1.0
            ):
                continue
            where = f"group {resolved.group.name!r}: column {name!r}"
            if feature.HasField("int_domain"):
                _check_ints(known, where, feature.int_domain)
            else:
                domain = feature.string_domain
                if feature.domain in shared:
                    domain = shared[feature.domain]
                if domain.value:
                    _check_texts(known, where, list(domain.value))


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


def _check_ints(known: Known, where: str, domain: schema_pb2.IntDomain) -> None:
    if not domain.max:  # 0: no upper bound is given
        return
    span = domain.max - domain.min + 1
    top_k, size = known.top_k, known.size
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
    for value in known.values:
        if not value.lstrip("-").isdigit() or not domain.min <= int(value) <= domain.max:
            raise ValueError(
                f"{where}: value {value!r} is not in the schema's domain; use an int of "
                f"{domain.min}..{domain.max}"
            )
