"""Many captures into one dataset of Parquet files; see :func:`cctoolkit.run_batch` and ``docs/batch.md``."""
