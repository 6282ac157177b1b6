"""Mixtures of experts: routers, layers, losses, the classic mixtures, and estimators of a router's gradient."""
