"""Schema of the command ledger: numbered scripts, forward only, never edited."""
