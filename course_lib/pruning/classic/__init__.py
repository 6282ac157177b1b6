"""Exact pruning of small networks: Optimal Brain Damage, Optimal Brain Surgeon, Hessians, and the papers' problems."""
