"""The encoders: what takes the place of a category, a number's bucket, a date, text, or picture."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from transform.spec.common import Model, as_list

DatePart = Literal[
    "minute", "hour", "weekday", "weekend", "day", "week", "month", "quarter", "day_of_year", "year"
]


def _texts_of_ints(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value]


def _distinct_texts(field: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if "" in values:
        raise ValueError(f"{field} holds the empty text, which is missing; remove it")
    twice = sorted(value for value, times in Counter(values).items() if times > 1)
    if twice:
        raise ValueError(f"{field} holds {twice[0]!r} twice; remove one")
    return values


_Values = Annotated[tuple[str, ...], BeforeValidator(_texts_of_ints), Field(min_length=1)]
_VALUES = "texts, or ints for an int column; quote what YAML reads as bool"


def _check_one_of(what: str, first: tuple[str, Any], second: tuple[str, Any]) -> None:
    """Raise ValueError unless exactly one of two options is given."""
    if (first[1] is None) == (second[1] is None):
        words = ("neither", "nor") if first[1] is None else ("both", "and")
        raise ValueError(
            f"{what} has {words[0]} {first[0]} {words[1]} {second[0]}; give exactly one"
        )


class Options(Model):
    """Options of an encoder, and which of a group's other steps go with it."""

    takes_clip: ClassVar[bool] = False
    takes_share: ClassVar[bool] = False
    #: What it has for a missing value, where no other value may take the place of one.
    own_missing: ClassVar[str | None] = None


class Vocabulary(Options):
    """Ids by frequency, or in a given order: 0..V-1 known values, then `oov_buckets`, then missing.

    encode: vocabulary                                    every value, most frequent first
    encode: {vocabulary: {top_k: 1000, min_count: 5}}     the most frequent, of those seen 5 times
    encode: {vocabulary: {values: [Oslo, Bergen]}}        given ones, in this order: nothing learned

    In a pipeline's YAML, `file: towns.txt` stands for the values, one per line. With `share: true`
    of the group, values are counted over all of its columns.
    """

    takes_share: ClassVar[bool] = True

    top_k: int | None = Field(default=None, ge=1, description="values kept, most frequent first")
    min_count: int | None = Field(
        default=None, ge=2, description="rows of the analysis data that a kept value is in at least"
    )
    values: _Values | None = Field(
        default=None, description=f"known values in the order of their ids: {_VALUES}"
    )
    oov_buckets: int = Field(default=1, ge=1, description="ids for unseen values, by hash")

    @model_validator(mode="after")
    def _learned_or_given(self) -> Vocabulary:
        if self.values is None:
            return self
        _distinct_texts("vocabulary.values", self.values)
        for field, option in (("top_k", self.top_k), ("min_count", self.min_count)):
            if option is not None:
                raise ValueError(
                    f"vocabulary has values and {field}={option}, which chooses among learned "
                    f"values; remove {field}, or values"
                )
        return self


class Integer(Options):
    """Ids are the values themselves: 0..size-1, then one for out of range, one for missing."""

    takes_share: ClassVar[bool] = True

    size: int = Field(ge=1, le=2**53, description="values 0..size-1 keep their own id")


class Bucketize(Options):
    """Ids by quantile, or by given bounds: 0..buckets-1, then one for missing.

    encode: {bucketize: {buckets: 10}}                  of about equal count, learned
    encode: {bucketize: {boundaries: [0, 18, 65]}}      below 0, 0 to 18, 18 to 65, from 65 on
    """

    takes_clip: ClassVar[bool] = True

    buckets: int | None = Field(
        default=None, ge=2, description="number of buckets of about equal count"
    )
    boundaries: Annotated[tuple[float, ...], Field(min_length=1)] | None = Field(
        default=None, description="ascending; a value equal to one is in the bucket above it"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Bucketize:
        _check_one_of("bucketize", ("buckets", self.buckets), ("boundaries", self.boundaries))
        given = self.boundaries or ()
        if not all(map(math.isfinite, given)) or list(given) != sorted(set(given)):
            raise ValueError(
                f"bucketize.boundaries={list(given)}; give different finite numbers, ascending"
            )
        return self

    @property
    def count(self) -> int:
        """Number of buckets."""
        return self.buckets or len(self.boundaries or ()) + 1


class Hash(Options):
    """Ids by a stable hash of the value's text: 0..buckets-1, then one for missing."""

    takes_share: ClassVar[bool] = True

    buckets: int = Field(ge=1, description="number of buckets that values are hashed into")


class OneHot(Options):
    """A 0/1 float column per listed value, one for any other value and one for missing.

    encode: {one_hot: {values: [Cash, Credit Card]}}
    """

    values: _Values = Field(description=_VALUES)

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return _distinct_texts("one_hot.values", values)


class MultiHot(Options):
    """As one_hot, for a column with any number of values in a row.

    encode: {multi_hot: {values: [red, green]}}   listed values
    encode: {multi_hot: {top_k: 100}}             the most frequent values, learned
    """

    own_missing: ClassVar[str | None] = "a separate column"

    values: _Values | None = Field(default=None, description=_VALUES)
    top_k: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="number of most frequent values, one column each",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> MultiHot:
        _check_one_of("multi_hot", ("values", self.values), ("top_k", self.top_k))
        if self.values is not None:
            _distinct_texts("multi_hot.values", self.values)
        return self


class Date(Options):
    """Parts of a date, each an id, or a point on the circle.

    encode: {date: {parts: [hour, weekday]}}                 ids <name>_hour, <name>_weekday
    encode: {date: {parts: [hour, weekday], cyclic: true}}   floats <name>_hour_sin, _hour_cos, ...
    encode: {date: {parts: [month], format: "%d.%m.%Y"}}     of texts as 06.05.2013
    encode: {date: {parts: [month], elapsed: true}}          and the float <name>_elapsed
    """

    own_missing: ClassVar[str | None] = (
        "a separate id (or 0 and 0 on the circle; the mean of elapsed time)"
    )

    parts: Annotated[tuple[DatePart, ...], BeforeValidator(as_list)] = Field(
        default=(), description="which parts of it"
    )
    elapsed: bool = Field(
        default=False,
        description="also the time as a number: days since 1970, as a z-score over all rows; what "
        "comes later than all of them is beyond them",
    )
    cyclic: bool = Field(
        default=False, description="sine and cosine of the part's share of its period"
    )
    unit: Literal["seconds", "milliseconds", "microseconds"] = Field(
        default="seconds", description="of an int column, counted from 1970-01-01T00:00:00 UTC"
    )
    format: str | None = Field(
        default=None,
        description="how texts (or ints as 20130506) are written, in strptime's directives; "
        "null: ISO 8601, and ints count from 1970",
    )

    @field_validator("format")
    @classmethod
    def _readable(cls, form: str | None) -> str | None:
        if form is not None:
            _check_format(form)
        return form

    @model_validator(mode="after")
    def _consistent(self) -> Date:
        _distinct_texts("date.parts", self.parts)
        if not self.parts and not self.elapsed:
            raise ValueError(
                f"date gives nothing: name parts, of {', '.join(get_args(DatePart))}, or "
                "elapsed: true, or both"
            )
        if self.format is not None and self.unit != "seconds":
            raise ValueError(
                f"date.unit={self.unit} counts from 1970, and date.format={self.format!r} is of "
                "what is written as a date; leave one out"
            )
        if self.cyclic and "year" in self.parts:
            raise ValueError(
                "date.parts has year with cyclic: true, and no year comes again; put year into a "
                "group without cyclic"
            )
        return self


class Text(Options):
    """Free text as its terms: words and neighbouring words, each with its TF-IDF weight.

    encode: text                                     10,000 terms of one or two words
    encode: {text: {top_k: 2000, ngrams: 1}}         2,000 words
    """

    own_missing: ClassVar[str | None] = "no term, as a text without known ones"

    top_k: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="number of terms kept, those in the most rows first",
    )
    min_count: int = Field(
        default=2, ge=1, description="rows of the analysis data that a kept term is in at least"
    )
    ngrams: int = Field(
        default=2, ge=1, le=3, description="a term is one word, or up to so many in a row"
    )
    max_terms: int = Field(
        default=64,
        ge=1,
        le=1_000,
        description="different terms of a row that reach the model, those of the largest weight",
    )
    sublinear_tf: bool = Field(
        default=False, description="a term that a row holds n times counts 1 + log(n), not n"
    )


class Image(Options):
    """Encoded pictures (JPEG, PNG, BMP, GIF) as pixels of one shape, a separate uint8 output.

    encode: {image: {height: 64, width: 64}}                 3 channels, the middle of the picture
    encode: {image: {height: 28, width: 28, channels: 1}}    grey
    """

    own_missing: ClassVar[str | None] = "no substitute, since each row needs a picture"

    height: int = Field(ge=1, le=4096, description="in pixels")
    width: int = Field(ge=1, le=4096, description="in pixels")
    channels: Literal[1, 3] = Field(default=3, description="1 (grey) or 3 (RGB)")
    resize: Literal["crop", "pad", "stretch"] = Field(
        default="crop",
        description="how a picture of another shape becomes this one: its middle, all of it on "
        "black, or all of it in other proportions",
    )
    store: Literal["pixels", "encoded"] = Field(
        default="pixels",
        description="what is written: a byte per pixel and channel, or the file, which the trainer "
        "decodes in each epoch",
    )


class Tokens(Options):
    """A text as the sequence of its token ids, for a model of sequences (model: transformer).

    encode: tokens                                        the first 256 words, 8,000 known ones
    encode: {tokens: {split: bytes, max_length: 512}}     bytes: nothing is learned
    """

    own_missing: ClassVar[str | None] = "no tokens"

    split: Literal["words", "bytes"] = Field(
        default="words", description="what a token is; words as encode: text has them"
    )
    top_k: int = Field(
        default=8_000,
        ge=1,
        le=1_000_000,
        description="number of words with their own id, the most frequent ones; not with bytes",
    )
    max_length: int = Field(
        default=256, ge=1, le=100_000, description="tokens of a row that are kept, the first ones"
    )
    lowercase: bool = Field(default=True, description="lower-case the text before it is split")


_WITHOUT_OPTIONS = (
    "vocabulary",
    "text",
    "tokens",
)  # encoders whose name alone is enough: encode: text


def _allow_names(schema: dict[str, Any]) -> None:
    """Let the JSON Schema take what `_short_form` takes."""
    options = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"enum": list(_WITHOUT_OPTIONS)}, options]


class Encode(Model):
    """Exactly one way to turn a column into ids, 0/1 columns, terms, token ids, or pixels."""

    model_config = ConfigDict(json_schema_extra=_allow_names)

    vocabulary: Vocabulary | None = None
    integer: Integer | None = None
    bucketize: Bucketize | None = None
    hash: Hash | None = None
    one_hot: OneHot | None = None
    multi_hot: MultiHot | None = None
    date: Date | None = None
    text: Text | None = None
    tokens: Tokens | None = None
    image: Image | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        # `encode: vocabulary` and, in YAML, `encode: {vocabulary: }` for `{vocabulary: {}}`.
        for name in _WITHOUT_OPTIONS:
            if value == name or value == {name: None}:
                return {name: {}}
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Encode:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"encode names {given or 'no encoder'}; give exactly one of "
                f"{', '.join(type(self).model_fields)}"
            )
        return self

    @property
    def kind(self) -> str:
        """The encoder's name, as in `Column.kind`."""
        return next(n for n in type(self).model_fields if getattr(self, n) is not None)

    @property
    def option(self) -> Options:
        """The encoder's options."""
        return getattr(self, self.kind)


MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)

DIRECTIVES = ("Y", "y", "m", "b", "B", "d", "H", "I", "p", "M", "S")
_ONE_OF = (("Y", "y"), ("m", "b", "B"), ("d",))
_AT_MOST_ONE_OF = (("H", "I"),)


def directives(form: str) -> list[str]:
    """Return the letters behind the percent signs, in order, without `%%`."""
    return [part for part in re.findall(r"%(.)", form) if part != "%"]


def _check_format(form: str) -> None:
    """Reject a format that is invalid, or that does not give a day."""
    what = f"date.format={form!r}"
    found = directives(form)
    known = ", ".join(f"%{letter}" for letter in DIRECTIVES)
    unknown = [letter for letter in found if letter not in DIRECTIVES]
    if unknown:
        raise ValueError(f"{what}: %{unknown[0]} is not supported; use of {known}")
    if re.sub(r"%.", "", form).endswith("%"):
        raise ValueError(f"{what} ends with a percent sign; write %% for one")
    for letters in (*_ONE_OF, *_AT_MOST_ONE_OF):
        several = [letter for letter in found if letter in letters]
        names = " or ".join(f"%{letter}" for letter in letters)
        if len(several) > 1:
            raise ValueError(
                f"{what} has {' and '.join('%' + s for s in several)}; use {names} once"
            )
        if not several and letters in _ONE_OF:
            raise ValueError(f"{what} does not give the day: it lacks {names}")
    repeated = [letter for letter in found if found.count(letter) > 1]
    if repeated:
        raise ValueError(f"{what} has %{repeated[0]} twice; use it once")
    if ("I" in found) != ("p" in found):
        raise ValueError(f"{what}: %I (1 to 12) and %p (AM or PM) go together; %H is 0 to 23")
