"""A warning about data or a model, as a record: the terminal, files and pages show the same."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RunWarning(BaseModel):
    """Something that may be wrong although nothing failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str = Field(description="What may be wrong, a sentence without its point.")
    fix: str = Field(default="", description="What to do, a sentence without its point.")
    column: str | None = Field(default=None, description="The column that it is about.")
    number: float | None = Field(
        default=None, allow_inf_nan=False, description="The number that it is about."
    )
    source: str = Field(default="init", description="The node or command that found it.")

    def __str__(self) -> str:
        """Return it in one or two sentences."""
        return f"{self.what}. {self.fix}." if self.fix else f"{self.what}."


def count_warnings(count: int) -> str:
    """Return `1 warning` or `2 warnings`."""
    return f"{count} warning{'' if count == 1 else 's'}"
