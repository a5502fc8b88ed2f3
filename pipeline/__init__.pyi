"""The public names of `pipeline`; `lazy_loader` reads this file."""

# ASCII only: lazy_loader reads it in the locale's encoding.

# A pipeline from a YAML file
from .config.config import PipelineConfig as PipelineConfig
from .config.config_file import load_config as load_config
from .graph.build import create_pipeline as create_pipeline
from .graph.user_nodes import NodeContext as NodeContext
