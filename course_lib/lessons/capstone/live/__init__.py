"""What lesson 12's notebook runs on the real model while it is read."""
