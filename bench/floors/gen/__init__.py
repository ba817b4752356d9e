"""Generated from floor.proto by `python -m bench.floors.generate`; never edited."""
