"""Many captures: read them on Dask into Parquet, and ask the store with DuckDB. `gather.fleet` is the entry."""
