"""Mathematics shared by several algorithms, as pure functions on arrays, without validation or randomness."""
