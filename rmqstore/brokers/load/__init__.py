"""Which files a starting broker loads, and which stop it."""
