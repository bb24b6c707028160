"""`python -m rmqstore` and the console script."""

from __future__ import annotations

import os


def main() -> None:
    """Runs the command line; ends the process with its exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that spin and do nothing for us
    from rmqstore.cli.main import cli

    cli.main(prog_name="rmqstore")


if __name__ == "__main__":
    main()
