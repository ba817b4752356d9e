"""Threads, turns and their logs: a state and the events that report it are one transaction."""
