"""The scenarios of the store tests of RocketMQ and DLedger, with exact values; see README.md."""
