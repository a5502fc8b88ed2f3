"""The artifact types of NormalizationValidator's outputs."""

from __future__ import annotations

from tfx.types.artifact import Artifact, Property, PropertyType

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"
BLESSED_FILE = "BLESSED"
NOT_BLESSED_FILE = "NOT_BLESSED"


class NormalizationReport(Artifact):
    """Statistics of every column and split, and the limits they violate.

    Files: `report.json` (components.normalization_validator.report.Report) and `report.html`.
    Properties: `violations` (their number) and `blessed` (1 when there is none, else 0).
    """

    TYPE_NAME = "NormalizationReport"
    PROPERTIES = {  # noqa: RUF012  (the attribute that tfx.types.artifact.Artifact declares)
        "violations": Property(type=PropertyType.INT),
        "blessed": Property(type=PropertyType.INT),
    }


class NormalizationBlessing(Artifact):
    """The verdict, laid out as TFX's ModelBlessing: a file BLESSED or NOT_BLESSED, and the
    property `blessed` (1 or 0).

    It is a type of its own because a Resolver looks up every ModelBlessing of the pipeline to find
    the latest blessed model; a blessing that is about no model would break that search.
    """

    TYPE_NAME = "NormalizationBlessing"
    PROPERTIES = {  # noqa: RUF012
        "blessed": Property(type=PropertyType.INT),
    }
