"""The mathematics that several algorithms share, as pure functions on arrays: they never validate, draw or log."""
