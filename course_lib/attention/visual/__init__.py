"""Which tokens of an image a language model needs: VFlowOpt, step by step, on a small model that sees and answers."""
