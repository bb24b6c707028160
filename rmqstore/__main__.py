"""`python -m rmqstore` and the console script."""

from __future__ import annotations


def main() -> None:
    """Runs the command line; ends the process with its exit code."""
    from rmqstore.cli.main import cli

    cli.main(prog_name="rmqstore")


if __name__ == "__main__":
    main()
