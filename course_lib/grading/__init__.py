"""Grade a class: submissions run in a sandbox and return data, and every comparison is done outside the sandbox."""
