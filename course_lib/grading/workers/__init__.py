"""Grade many submissions in parallel: in processes of this machine, or on a Dask cluster."""
