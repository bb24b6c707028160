"""The start rules of each broker version as data, and the result of applying them."""
