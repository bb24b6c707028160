"""Text conventions: Java strings, control characters, and times as people write them."""
