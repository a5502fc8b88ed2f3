"""The public names of `transform`, by use; `lazy_loader` reads this file."""

# ruff: noqa: I001 - grouped by use. ASCII only: lazy_loader reads it in the locale's encoding.

# The function that Transform runs
from .preprocessing import preprocessing_fn as preprocessing_fn

# Specify features
from .spec.features import FeatureSpec as FeatureSpec
from .spec.features import Label as Label
from .spec.group import Group as Group
from .spec.features import Cross as Cross
from .spec.encoders import Bucketize as Bucketize
from .spec.encoders import Date as Date
from .spec.encoders import Encode as Encode
from .spec.encoders import Hash as Hash
from .spec.encoders import Integer as Integer
from .spec.encoders import MultiHot as MultiHot
from .spec.encoders import OneHot as OneHot
from .spec.encoders import Vocabulary as Vocabulary
from .spec.group import Clip as Clip
from .spec.group import Constant as Constant

# Check a specification, explain its result
from .resolve.select import check_spec as check_spec
from .chains import column_chains as column_chains
from .chains import column_cautions as column_cautions

# The layout of packed features
from .chains import FeatureLayout as FeatureLayout
from .chains import Column as Column
from .preprocessing import LayoutLabel as LayoutLabel
from .resolve.output_columns import PACKED_FLOAT as PACKED_FLOAT
from .resolve.output_columns import PACKED_INT as PACKED_INT
from .resolve.output_columns import PACKED_MISSING as PACKED_MISSING

# In your own preprocessing_fn
from .columns.inputs import dense_numbers as dense_numbers
from .columns.inputs import dense_texts as dense_texts
