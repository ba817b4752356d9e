"""The floors: the least that a reader, a forwarder and a durable forwarder of model streams can cost in Python."""
