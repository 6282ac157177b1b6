"""What lesson 10's notebook runs on the real model while it is read."""
