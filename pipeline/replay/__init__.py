"""`replay`: execute what `compile` wrote on this machine, with the rules of the platform."""
