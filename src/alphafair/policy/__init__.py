"""What a policy is made of: its named memory, its algorithm, and the base class that all policies share."""
