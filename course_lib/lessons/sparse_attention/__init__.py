"""Lesson 11: sparse attention (FlexPrefill, delta attention, AutoPASTA, VFlowOpt, speculative decoding)."""
