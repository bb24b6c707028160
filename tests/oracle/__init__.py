"""Java sources that run with the jars of RocketMQ."""
