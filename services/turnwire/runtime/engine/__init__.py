"""The think-act loop over ports: no gRPC, no SQL, no provider. One task a turn; a turn ends exactly once."""
