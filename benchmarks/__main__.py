"""`python -m benchmarks`: what `make bench` runs; with `--spark` first, the Spark jobs beside local processes."""

import sys

from benchmarks import bench, spark

if __name__ == "__main__":
    if sys.argv[1:2] == ["--spark"]:
        spark.main(sys.argv[2:])
    else:
        bench.main()
