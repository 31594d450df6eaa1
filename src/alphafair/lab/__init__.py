"""Experiments as values, the paper's among them; running them; what they show. Needs alphafair[lab]."""

from alphafair.extras import require

require("lab", "alphafair.lab")
