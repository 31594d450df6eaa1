"""The lab: experiments as values, one runner, the reproduction of the paper, the arena. Needs alphafair[lab]."""

from alphafair.extras import require

require("lab", "alphafair.lab")
