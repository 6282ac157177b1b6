"""What is measured beside FlexPrefill: deltas of keys, steering, drafts. What they share is in ground.py."""
