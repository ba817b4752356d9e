"""The command line: a person's view of the services, over the Python client; it decides nothing by itself."""
