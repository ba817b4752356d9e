"""The runtime service: durable threads and turns, the think-act loop, models, and the turn log."""
