"""Fields of damaged records whose original value can be proved."""
