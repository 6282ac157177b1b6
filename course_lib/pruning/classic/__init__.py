"""Pruning small networks exactly: brain damage, brain surgeon, their Hessians and the problems of their papers."""
