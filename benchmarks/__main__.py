"""Entry point of `python -m benchmarks`: `bench`, or `spark` if the first argument is `--spark`."""

import sys

from benchmarks import bench, spark

if __name__ == "__main__":
    if sys.argv[1:2] == ["--spark"]:
        spark.main(sys.argv[2:])
    else:
        bench.main()
