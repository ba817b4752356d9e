"""The command ledger and its routing: an accepted command has one outcome, durable before it is told."""
