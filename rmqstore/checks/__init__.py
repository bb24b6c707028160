"""verify: the table of problems, and the checks that find them."""
