"""The scenarios of RocketMQ's and DLedger's own store tests, with exact values of our own."""
