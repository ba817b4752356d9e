"""Schema of the executor's ledger, as numbered scripts."""
