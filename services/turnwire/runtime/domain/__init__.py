"""Values of the runtime's domain: no I/O, no gRPC, no SQL."""
