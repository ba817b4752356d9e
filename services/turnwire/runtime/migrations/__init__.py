"""The runtime's schema as numbered scripts; each runs once, in order, in a transaction of its own."""
