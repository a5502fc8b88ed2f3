"""Run a compiled file on this machine: its nodes in order, conditions, commands, images, stores."""
