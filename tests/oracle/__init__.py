"""Java sources that run against the jars of RocketMQ."""
