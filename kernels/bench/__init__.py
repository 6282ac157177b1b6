"""One bench, one file: its contests, each a kernel beside its bound and the best there is without it."""
