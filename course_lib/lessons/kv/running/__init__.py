"""What lesson 07 runs on the real model while one looks on."""
