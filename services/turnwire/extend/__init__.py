"""What users of turnwire write against: events, tools and control errors. Stable, typed, free of gRPC."""
