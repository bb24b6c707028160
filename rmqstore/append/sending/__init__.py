"""Send messages to a running cluster through RocketMQ's Java client, with a journal of what was acknowledged."""
