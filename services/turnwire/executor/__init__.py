"""Tool executor: each accepted execution starts at most once and ends with exactly one truthful result."""
