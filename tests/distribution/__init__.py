"""What `make dist` has built: `make test-dist` runs these tests, other runs leave them out."""
