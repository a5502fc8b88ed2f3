"""Records of progress on a line of a log, and between processes."""

from __future__ import annotations

import io
import logging
import math

from trainer_module.common import progress

RECORDS = [
    progress.RowsCounted("Trainer", 3),
    progress.RowsProcessed(3),
    progress.TrainingStep(2, None, 1, 3, 0.25, 10.5, None, progress.TrialNumber(2, None)),
    progress.EvaluationEnded(1, {"auc": math.nan, "loss": 0.5}),
    progress.TrainingEnded("steps", 7, {"empty": 1}),
]


def test_record_survives_the_text_format():
    for record in RECORDS:
        stream = io.StringIO()
        logger = logging.Logger("of_this_test")
        logger.addHandler(progress.ProgressLines(stream))
        logger.info("others stay out")
        logger.info("step %d\nof many", 2, extra=progress.attached(record))
        (line,) = stream.getvalue().splitlines()
        found = progress.parse_line(line)
        assert found is not None
        text, back = found
        assert text == "step 2\nof many"
        assert repr(back) == repr(record)  # NaN is not equal to itself
        assert type(back) is type(record)
