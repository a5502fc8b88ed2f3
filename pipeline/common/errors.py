"""The one error of a configuration."""

from __future__ import annotations


class ConfigError(ValueError):
    """The configuration is wrong; the message names file, field, value and fix."""
