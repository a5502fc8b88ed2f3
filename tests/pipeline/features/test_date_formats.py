"""The format of a column's dates is guessed from all of its values."""

from __future__ import annotations

import pytest

from pipeline.features.date_formats import guess_format
from transform.spec.encoders import _check_format


@pytest.mark.parametrize(
    ("values", "form", "doubt"),
    [
        (["31.01.2020", "1.2.2021"], "%d.%m.%Y", None),
        (["01.02.2020", "1.2.2021"], "%d.%m.%Y", "%m.%d.%Y"),
        (["01/02/2020 10:30", "12/11/2021 00:00"], "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"),
        (["13/02/2020 10:30", "12/11/2021 00:00"], "%d/%m/%Y %H:%M", None),
        (["2020/01/31", "2020/2/1"], "%Y/%m/%d", None),
        (["31-Jan-2020", "01-Feb-2020"], "%d-%b-%Y", None),
        (["Jan 31, 2020", "Feb 1, 2020"], "%b %d, %Y", None),
        (["31. January 2020", "1. February 2020"], "%d. %B %Y", None),
        (["January 31, 2020"], "%B %d, %Y", None),
        (["2020 Jan 31"], "%Y %b %d", None),
        (["Feb-01-2020"], "%b-%d-%Y", None),
        (["20200131", "20201201"], "%Y%m%d", None),
        (["1/31/20 5:30 PM", "2/1/20 12:00 AM"], "%m/%d/%y %I:%M %p", None),
        (["31.01.2020 10:00:01.25"], "%d.%m.%Y %H:%M:%S", None),
    ],
)
def test_guesses(values, form, doubt):
    found = guess_format(values)
    assert found is not None
    assert (found.form, found.doubt) == (form, doubt)
    _check_format(found.form)


@pytest.mark.parametrize(
    "values", [["31.01.2020", "1/2/20"], ["32.01.2020"], ["1.2.3"], ["abc"], ["12345678"], []]
)
def test_what_is_no_date(values):
    assert guess_format(values) is None
