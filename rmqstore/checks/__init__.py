"""What can be wrong with a store: the table of problems, and what finds them."""
