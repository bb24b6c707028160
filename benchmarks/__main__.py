"""`python -m benchmarks`: what `make bench` runs."""

from benchmarks.bench import main

if __name__ == "__main__":
    main()
