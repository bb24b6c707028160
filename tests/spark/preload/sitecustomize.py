"""Import modules in the daemons from which Spark forks its planning workers, to save each worker almost a second.

Python runs this file at its start. The setting `spark.python.daemon.module` applies only to the workers of executors;
for planning, Spark always starts `pyspark.daemon`.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import tests.spark.daemon  # noqa: F401
