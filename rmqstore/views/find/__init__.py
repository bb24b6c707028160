"""Find messages, and tell whether consumers get them."""
