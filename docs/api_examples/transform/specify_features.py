"""Models of the YAML's section [features](../../settings/features.md), which has every field."""

from transform import Clip, Encode, FeatureSpec, Group, Label, Vocabulary

money = Group(name="money", columns=("fare", "trip_*"), clip=Clip(min=0.0), scale="z_score")
towns = Group(name="towns", columns=("town",), encode=Encode(vocabulary=Vocabulary(top_k=100)))
spec = FeatureSpec(groups=(money, towns), label=Label(column="tip", kind="regression"))
print(spec.raw_columns())  # ('fare', 'town', 'tip')
