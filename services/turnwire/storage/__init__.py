"""The one writer with group commit and what stands beside it: nothing counts as stored before its commit."""
