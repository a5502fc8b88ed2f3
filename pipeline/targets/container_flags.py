"""The flags of a node's container, written by the compiler and read by the entry point."""

INVOCATION = "--json_serialized_invocation_args"
INPUTS_SPEC = "--json_serialized_inputs_spec_args"
OUTPUTS_SPEC = "--json_serialized_outputs_spec_args"
RUN_TIME_PARAMETERS = "--run_time_parameters"
"""With a packed `NodeParameters`; not there where a node takes no run-time parameter."""
DRIVER = "--run_driver"
"""Without a value: run TFX's driver of file-based ExampleGens in the executor's place."""
