"""What users of turnwire write against: event types, tools and control errors. Stable, typed, free of gRPC."""
