"""How a column of CSV writes numbers for people: `$1,234.50`, `23.4%`, `1.234,50 €`, `(12)`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class NumberFormat(BaseModel):
    """What stands in the numbers of a column beside digits; a number in parentheses is negative."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str = Field(
        default="",
        description=(
            "A currency, before or behind each number or left out, or %, behind each of them: "
            "23.4% is 23.4."
        ),
    )
    thousands: Literal["", ",", ".", " ", "'"] = Field(
        default="",
        description="Between groups of three digits; ' ' takes non-breaking and thin spaces too.",
    )
    decimal: Literal[".", ","] = Field(default=".", description="Mark before decimals.")

    @field_validator("unit")
    @classmethod
    def _is_a_sign(cls, value: str) -> str:
        wrong = [c for c in value if c.isdigit() or c.isspace() or c in "+-\u2212(),'\u2019"]
        if wrong or (value and not value.strip(".")) or len(value) > 8:
            raise ValueError(
                f"{value!r} is not a unit; use a currency as '$', '€' or 'EUR', or '%'"
            )
        return value

    @model_validator(mode="after")
    def _distinct(self) -> NumberFormat:
        if self.thousands == self.decimal:
            other = "," if self.decimal == "." else "."
            raise ValueError(
                f"thousands and decimal are both {self.decimal!r}; set decimal: {other!r}, or "
                "another separator of thousands"
            )
        return self

    @property
    def example(self) -> str:
        """A number in this form."""
        number = f"1{self.thousands}234{self.decimal}5"
        return f"{number}{self.unit}" if self.unit == "%" else f"{self.unit}{number}"
