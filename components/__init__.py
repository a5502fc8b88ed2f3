"""Custom TFX components; one folder each: component.py, executor.py, README.md.

    from components import NormalizationLimits, NormalizationValidator

`__init__.pyi` lists the public names. Each is imported on first use, so that a configuration that
only needs `NormalizationLimits` imports neither TensorFlow nor TFX.
"""

from __future__ import annotations

from trainer_module.common.extras import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, extra="tfx")
