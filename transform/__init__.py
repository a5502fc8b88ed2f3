"""Feature specification -> `preprocessing_fn`: vectorised, NaN-safe normalisation on Beam.

    tfx.components.Transform(
        examples=..., schema=...,
        preprocessing_fn="transform.preprocessing_fn",
        custom_config={"features": FeatureSpec(...).model_dump(mode="json")},
    )

`__init__.pyi` lists the public names. Each is imported on first use: a specification needs pydantic
alone, and is parsed and refused without waiting for TensorFlow.
"""

from __future__ import annotations

import lazy_loader

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _import_name(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "transform":
            raise
        raise ModuleNotFoundError(
            f"transform.{name} needs {error.name}, which is not installed: "
            "uv pip install 'tfx-largebatch[tfx]'",
            name=error.name,
        ) from error
