"""The pipelines of `kwire pipeline` as a program for spark-submit: mirror, archive, replay, report.

Needs `pip install 'kwire[spark,cli]'` on the driver, and kwire on the executors: installed, or by --py-files: the
folder `kwire` in a zip, or the wheel under a name that ends in .zip.

    spark-submit --py-files kwire.zip examples/pipeline.py mirror -s broker1:9092 -t broker2:9092 --topics orders \\
        --checkpoint s3a://bucket/mirror --create-topics --every 10s

On a laptop it is the same as `kwire pipeline`:

    python examples/pipeline.py audit broker1:9092/orders broker2:9092/orders
"""

import sys

from kwire.cli import main

if __name__ == "__main__":
    main(["pipeline", *sys.argv[1:]])
