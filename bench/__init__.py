"""Every figure is measured beside the floors, in one interleaved run, on processes as they are shipped."""
