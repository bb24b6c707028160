"""Predicts what a broker does to a store at its next start, by the rules of its version."""
