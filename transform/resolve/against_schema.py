"""Whether a spec fits the data, asked of a TFDV schema before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.columns.types import ResolvedGroup, column_types
from transform.resolve.domains import check_domains
from transform.resolve.select import resolve
from transform.spec.features import FeatureSpec

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
    check_domains(groups, schema)
    return groups
