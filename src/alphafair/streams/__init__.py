"""Where contexts and rewards come from."""

from alphafair.streams.synthetic import drifting, greedy_trap, impossibility, stochastic

__all__ = ["drifting", "greedy_trap", "impossibility", "stochastic"]
