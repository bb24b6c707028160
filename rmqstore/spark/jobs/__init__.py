"""The jobs of `rmqstore pipeline`."""
