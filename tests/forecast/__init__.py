"""Tests of rmqstore.brokers that need no Java: real answers are recorded beside them."""
