"""The reference of the YAML: a page per section, and one of schedules, made from the models."""

from __future__ import annotations

import functools
import inspect
import io
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from pipeline.config.accepted import accepted
from pipeline.config.config import PipelineConfig

_UNITS = {word: word for word in ("seconds", "minutes", "percent", "rows", "epochs")}
_UNITS |= {"gib": "GiB", "batch_size": "rows"}
_CODE = re.compile(r"^ *(?:- \{|\w+:(?: |$))", re.MULTILINE)
_SCHEMA: dict[str, Any] = PipelineConfig.model_json_schema(by_alias=True)
PLACES: dict[str, str] = {}  # model -> its page and heading, within the folder

INDEX = """# Settings

Every setting of the YAML with type, unit, default, meaning and an example. `custom_config` of a
Trainer takes those of [training](training.md), that of a Transform those of
[features](features.md). `python -m pipeline schema` prints them as JSON Schema, for your editor.

| section | |
| --- | --- |
"""
SCHEDULES = """# Learning-rate schedules and optimizers

```yaml
training:
  optimizer: {name: adamw, learning_rate: 0.002, schedule: {name: cosine, warmup_steps: 100}}
```

![Learning rate by optimizer step](schedules.svg)

Left: `optimizer.schedule` over 1,000 steps with `learning_rate: 0.002`; it ends at 0 at the last
step. Right: `scale_learning_rate` with `global_batch_size: {0: 256, 500: 1024}`, which multiplies
the rate, that of a schedule too. [All fields](training.md#training.optimizer). In a program, give
`TrainStep` a Keras optimizer with any schedule of `keras.optimizers.schedules`;
[ScaledLearningRate](../api/trainer_module/train-a-keras-model.md) scales it.

## Optimizers

`name` is a Keras optimizer, `options` are its other arguments. Options that would act on each
micro-batch (`clipnorm`, `use_ema`, `gradient_accumulation_steps`, ...) are rejected:
`training.clip_norm` and `training.ema_momentum` replace them.

| `name` | `options` with defaults |
| --- | --- |
"""
_NO_OPTIONS = {
    *("learning_rate", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("ema_momentum", "ema_overwrite_frequency", "loss_scale_factor", "name", "kwargs"),
    "gradient_accumulation_steps",
}


class _Model(NamedTuple):
    keys: tuple[str | int, ...]
    schema: dict[str, Any]
    name: str

    @property
    def anchor(self) -> str:
        return _anchor(self.keys)


def _anchor(keys: tuple[str | int, ...]) -> str:
    return ".".join(key for key in keys if isinstance(key, str))


def _models(schema: dict[str, Any], keys: tuple[str | int, ...]) -> Iterator[_Model]:
    """Yield each model that a field holds, itself or as items of a list or mapping."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        model = _SCHEMA["$defs"][name]
        model = next((s for s in model.get("anyOf", ()) if "properties" in s), model)
        if "properties" in model:
            yield _Model(keys, model, name)
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _models(each, keys)
    for inner, key in (("items", 0), ("additionalProperties", "NAME")):
        if isinstance(schema.get(inner), dict):
            yield from _models(schema[inner], (*keys, key))


@functools.cache
def pages() -> dict[str, str]:
    """Return the text of each page, and the picture, by its path."""
    found, rows = dict[str, str](), [INDEX]
    for section, field in _SCHEMA["properties"].items():
        parts = [f"# {section}"]
        queue = [each for each in _models(field, (section,)) if each.name not in PLACES]
        if not queue or queue[0].keys != (section,):
            links = [f"#{each.anchor}" for each in queue]
            parts += _setting((section,), field, section in _SCHEMA["required"], links)
        PLACES.update({each.name: f"{section}.md#{each.anchor}" for each in queue})
        for model in queue:
            heading = f"## {model.anchor} {{ #{model.anchor} }}" if len(model.keys) > 1 else ""
            parts += [heading, text_of(model.schema.get("description", ""))]
            required = model.schema.get("required", ())
            for key, value in model.schema["properties"].items():
                inner = list(_models(value, (*model.keys, key)))
                new = [each for each in inner if each.name not in PLACES]
                PLACES.update({each.name: f"{section}.md#{each.anchor}" for each in new})
                queue += new
                links = [PLACES[each.name].removeprefix(f"{section}.md") for each in inner]
                parts += _setting((*model.keys, key), value, key in required, links)
        found[f"settings/{section}.md"] = "\n\n".join(filter(None, parts)) + "\n"
        docs = field.get("description") or (queue[0].schema["description"] if queue else "")
        rows.append(f"| [{section}]({section}.md) | {text_of(docs).splitlines()[0]} |\n")
    rows.append("| [schedules and optimizers](schedules.md) | Names, options, a picture. |\n")
    found |= {"settings/schedules.md": _schedules(), "settings/schedules.svg": _picture()}
    return {"settings/index.md": "".join(rows), **found}


def _setting(
    keys: tuple[str | int, ...], field: dict[str, Any], required: bool, links: list[str]
) -> list[str]:
    """Return the heading, facts, meaning and example of a setting."""
    place = accepted(PipelineConfig, keys, {})
    kind = place.fix(PipelineConfig, None).removeprefix("Use ").partition(", such as `")[0]
    value: Any = place.example(PipelineConfig)
    for key in reversed(keys):
        value = [value] if key == 0 else {key: value}
    example = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()
    unit = next((u for end, u in _UNITS.items() if re.search(rf"(^|_){end}$", str(keys[-1]))), "")
    value = field.get("default", [] if field.get("type") == "array" else {})
    shown = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n")
    default = "required" if required else f"default `{shown.strip()}`"
    kind = re.sub(r"(?<=that matches )\S+", lambda match: f"`{match[0]}`", kind)
    if links:
        kind = kind.partition(" with ")[0]
        default = default if required or field.get("default", 0) in (None, []) else ""
    facts = [kind, f"in {unit}" if unit else "", default, *(f"[settings]({x})" for x in links)]
    anchor = "" if links else f" {{ #{_anchor(keys)} }}"  # else that of the model's heading
    return [
        f"### `{keys[-1]}`{anchor}",
        ", ".join(filter(None, facts)),
        text_of(field.get("description", "")),
        f"```yaml\n{example[1:-1]}\n```",
    ]


def text_of(docs: str) -> str:
    """Return a docstring as Markdown: sentences, and YAML in blocks."""
    parts = []
    for part in filter(None, inspect.cleandoc(docs).split("\n\n")):
        if "{" in part and len(_CODE.findall(part)) == len(part.splitlines()):
            parts.append(f"```yaml\n{part}\n```")
        else:
            part = " ".join(part.split())
            first = part[0].upper() if re.match(r"[a-z]+ ", part) else part[0]
            parts.append(first + part[1:] + ("" if part[-1] in ".:" else "."))
    return "\n\n".join(parts)


def _schedules() -> str:
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    from trainer_module.common.keras_names import _known_names
    from trainer_module.model.optimizers import _optimizer_class

    rows, known = list[str](), _known_names("optimizer")
    for name in sorted(known.choices if known else ()):
        parameters = inspect.signature(_optimizer_class(name)).parameters.values()
        options = [f"`{p.name}={p.default!r}`" for p in parameters if p.name not in _NO_OPTIONS]
        rows.append(f"| `{name}` | {', '.join(options) or 'none'} |\n")
    return SCHEDULES + "".join(rows)


def _picture() -> str:
    import numpy as np
    from matplotlib.figure import Figure

    from trainer_module import ScaledLearningRate
    from trainer_module.model.optimizers import _Schedule
    from trainer_module.options.task_options import ScheduleConfig

    steps, sizes = np.arange(1000), {0: 256, 500: 1024}
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=False)
    left.plot(steps, np.full(1000, 0.002), label="none", color="gray")
    for name, warmup in (("linear", 0), ("cosine", 0), ("linear", 100), ("cosine", 100)):
        rate = _Schedule(0.002, ScheduleConfig(name=name, warmup_steps=warmup), 1000)(steps)
        label = f"{{name: {name}{f', warmup_steps: {warmup}' if warmup else ''}}}"
        left.plot(steps, rate, label=label, linestyle="--" if warmup else "-")
    right.plot(steps, np.full(1000, 0.002), label="none", color="gray")
    for scaling in ("linear", "sqrt"):
        rate = [float(ScaledLearningRate(0.002, sizes, scaling)(step)) for step in steps[::10]]
        right.plot(steps[::10], rate, label=scaling, drawstyle="steps-post")
    for axes in (left, right):
        axes.set(xlabel="optimizer step", ylabel="learning rate", ylim=(0, None))
        axes.legend(fontsize=7)
    figure.savefig(buffer := io.StringIO(), format="svg")
    return buffer.getvalue()
