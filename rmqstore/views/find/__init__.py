"""Where a message is, and whether consumers get it."""
