"""Threads, turns and their logs on the storage floor. State and the events that report it are one transaction."""
