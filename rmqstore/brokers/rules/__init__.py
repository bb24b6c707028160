"""Start rules of each broker version as data."""
