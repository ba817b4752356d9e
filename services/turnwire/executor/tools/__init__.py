"""Built-in tools: trusted, bounded in time and memory, run inside the service itself."""
