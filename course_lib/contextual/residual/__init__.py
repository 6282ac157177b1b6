"""What flows from block to block: how little each changes it, and models in which some are taken to change nothing."""
