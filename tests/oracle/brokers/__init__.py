"""Scripts that created the stores in fixtures/stores."""
