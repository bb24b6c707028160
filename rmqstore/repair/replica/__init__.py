"""Original bytes from a replica: proof that it is one, the places that need its bytes, and the store that results."""
