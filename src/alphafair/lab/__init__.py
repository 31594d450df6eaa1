"""The lab: experiments as values, one runner, the paper's reproduction, the arena, and their reports."""
