"""Programs for those who work on alphafair, and what its documentation is made with."""
