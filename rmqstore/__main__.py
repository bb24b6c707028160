"""`python -m rmqstore` and the console script."""

from __future__ import annotations

import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command runs, Ctrl-C has nothing to clean up

# Objects. No command has as many when it has loaded its modules and read a small store (at most 80,000): a collection
# of that many takes 5 ms and finds nothing to free.
_GARBAGE_COLLECTION = 200_000
# Modules with threads, processes or open databases, which need the interpreter's own end.
_NEED_AN_END = {"duckdb", "multiprocessing", "pyarrow", "pyspark", "rocksdict"}


class _WithoutPandas:
    """Hides pandas, which we do not use: pyarrow imports it if it is installed, which takes longer than a query."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Let other finders find all other modules."""
        if name == "pandas":
            from rmqstore.texts import Text

            raise ModuleNotFoundError(Text("No module named {name!r}", name=name), name=name)


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    import gc
    import threading
    import warnings

    os.umask(0o077)  # what libraries and other programs write for us is as private as what we write
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that spin and do nothing for us
    gc.set_threshold(_GARBAGE_COLLECTION)
    if not sys.warnoptions:  # our users cannot act on what libraries say to each other
        warnings.simplefilter("ignore", FutureWarning)
        os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # processes of PySpark
    if sys.argv[1:2] != ["pipeline"]:  # PySpark uses pandas
        sys.meta_path.insert(0, _WithoutPandas)
    from rmqstore.cli.main import cli, end_process

    try:
        cli.main(prog_name="rmqstore")
    except SystemExit as end:
        if isinstance(end.code, int) and threading.active_count() == 1 and not sys.modules.keys() & _NEED_AN_END:
            end_process(end.code)
        raise
    finally:
        if "duckdb" not in sys.modules:  # it would report objects that are not collected as leaks
            gc.freeze()  # the interpreter collects at its end too, and would search all modules for cycles


if __name__ == "__main__":
    main()
