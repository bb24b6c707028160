"""How the stores in fixtures/stores were made."""
