"""The artifact class of types that TFX does not know."""

from tfx.types.artifact import Artifact


class UnknownArtifact(Artifact):
    """TFX's base Artifact, which cannot be created without a type name."""

    TYPE_NAME = "Artifact"
