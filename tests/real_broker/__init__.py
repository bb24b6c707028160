"""Tests with the real RocketMQ: its store classes (`oracle.py`) and whole brokers (`whole_broker.py`)."""
