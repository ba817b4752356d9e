"""The floors: the least that a reader, a forwarder and a durable forwarder of streams can cost in Python."""
