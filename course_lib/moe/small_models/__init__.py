"""Small models of bytes with experts: training them, what their routers do, and the one whose weights are kept."""
