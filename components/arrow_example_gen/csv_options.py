"""How CSV files are written. Every option that is not set is detected."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_MISSING = ("", "NA", "N/A", "?", "null", "NULL", "NaN", "nan")


class CsvOptions(BaseModel):
    """How CSV files are written. What is not set is detected in each file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: bool | None = Field(
        default=None,
        description=(
            "Whether the first line names the columns; false: they are column_1, column_2, ... "
            "Default: it does, and a first line that looks like data is an error."
        ),
    )
    delimiter: str | None = Field(
        default=None,
        description=(
            "Between cells: one character. Default: the one of , ; tab | that fits; where none "
            "does, another sign that gives every line as many cells (a space, ^, ~, ...)."
        ),
    )
    quote: str = Field(
        default='"',
        description="Around cells that hold delimiters, quotes (doubled) or line breaks.",
    )
    encoding: str | None = Field(
        default=None,
        description=(
            "utf-8, utf-16, latin-1, cp1252, ... Default: by the byte order mark, else utf-8."
        ),
    )
    decimal: Literal[".", ","] | None = Field(
        default=None,
        description=(
            "Mark in numbers. Default: '.', and ',' where cells are not separated by "
            "commas and no number has a point."
        ),
    )
    missing: tuple[str, ...] = Field(
        default=_MISSING, description="Cells that say that there is no value, in any column."
    )
    missing_in: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description=(
            "Column -> cells of it that say that there is no value, beside those of `missing`."
        ),
    )
    comment: str | None = Field(
        default=None,
        min_length=1,
        description="Lines that start with this are left out, the first ones too.",
    )
    text: tuple[str, ...] = Field(
        default=(),
        description="Columns whose values are texts where they look like numbers: codes, say.",
    )

    def missing_words(self, column: str) -> tuple[str, ...]:
        """Return the cells of a column that say that there is no value."""
        return (*self.missing, *self.missing_in.get(column, ()))

    @field_validator("delimiter", "quote")
    @classmethod
    def _one_character(cls, value: str | None) -> str | None:
        if value is not None and (
            len(value) != 1 or ord(value) > 127 or value in "\r\n\0" or value.isalnum()
        ):
            raise ValueError(
                f"{value!r} is not one ASCII character other than letters and digits; use ',', "
                "';', '\\t', '|', ' ' or '^'"
            )
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                io.TextIOWrapper(io.BytesIO(), value).read()
            except (LookupError, UnicodeError):  # it is none, or none of texts, as base64
                raise ValueError(
                    f"unknown encoding {value!r}; use utf-8, utf-16, latin-1, cp1252 or another "
                    "that Python knows"
                ) from None
        return value

    @model_validator(mode="after")
    def _distinct(self) -> CsvOptions:
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.quote!r}; they must differ")
        if self.decimal == "," and self.delimiter == ",":
            raise ValueError("decimal and delimiter are both ','; they must differ")
        return self
