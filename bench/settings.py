def shipped_settings():
    return {"synchronous": "FULL", "spacing_ms": "5"}
