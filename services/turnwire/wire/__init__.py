"""The edge to gRPC: every call in or out passes here, and leaves with a documented status."""
