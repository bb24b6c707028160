"""For the daemons that Spark forks its planning workers from: what each worker would import for most of a second.

Python runs this file at its start. `spark.python.daemon.module` is only for the workers of executors; for planning,
Spark starts `pyspark.daemon` whatever the settings say.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import tests.spark.daemon  # noqa: F401
