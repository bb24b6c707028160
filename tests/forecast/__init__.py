"""Tests of rmqstore.brokers without Java: what real brokers did is recorded in the JSON files beside them."""
