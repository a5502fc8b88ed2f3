"""The artifact types of NormalizationValidator's outputs.

Two rules of TFX's Kubeflow compiler shape them. A type's TYPE_NAME is where to import it from, with
exactly one dot: so it is written into the compiled spec, and so the container finds it again. And a
custom type declares no properties, so what it carries are custom properties, as ModelBlessing's.
"""

from __future__ import annotations

from tfx.types.artifact import Artifact

REPORT_JSON = "report.json"
BLESSED_FILE = "BLESSED"
NOT_BLESSED_FILE = "NOT_BLESSED"

VIOLATIONS = "violations"
BLESSED = "blessed"


class NormalizationReport(Artifact):
    """Statistics of every column and split, and the limits they violate.

    File: `report.json` (components.normalization_validator.report.Report).
    Custom properties: `violations` (their number) and `blessed` (1 when there is none, else 0).
    """

    TYPE_NAME = "components.NormalizationReport"


class NormalizationBlessing(Artifact):
    """The verdict, laid out as TFX's ModelBlessing.

    It is a file BLESSED or NOT_BLESSED, and the custom property `blessed` (1 or 0).

    It is a separate type because a Resolver looks up every ModelBlessing of the pipeline to find
    the latest blessed model; a blessing that is about no model would break that search.
    """

    TYPE_NAME = "components.NormalizationBlessing"
