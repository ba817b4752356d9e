"""Models of every provider behind one port: bytes in, the closed event union out, one terminal event each.

Nothing outside this package knows a provider's wire format, and nothing in it knows the engine.
"""
