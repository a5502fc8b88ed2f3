"""Run a compiled file on this machine: order of nodes, conditions, commands, images, stores."""
