"""Fair decisions over HTTP: one process, one file, answers only after they are on disk."""
