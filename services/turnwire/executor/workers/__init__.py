"""Processes that run tools: the service forks nothing, and no process of a tool outlives its execution."""
