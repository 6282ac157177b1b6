"""What is measured beside FlexPrefill: deltas of keys, steering, drafts."""
