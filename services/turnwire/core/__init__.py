"""Values every service shares: nothing here knows gRPC, a database or another turnwire package."""
