"""What words such as "no loss" count as: one mark for each kind of statement, with its reason, for all lessons.

Claims use a mark as `above=` or `below=`, its reason as `because=`, and the other marks as `other_thresholds=`.
"""

import math

NO_LOSS = 0.05  # nats per token, and so the logarithm of a ratio of perplexities
WHY_NO_LOSS = "no loss means less than 5 % more perplexity (0.05 nats per token), about the spread between texts"
OTHER_LOSSES = (0.01, 0.02)

HARMED = math.log(1.5)  # logarithm of a ratio of perplexities
WHY_HARMED = "1.5 times is the course's mark of a harmed model"
OTHER_HARMS = (math.log(1.25), math.log(2), math.log(3))

MOST = 0.5
WHY_MOST = "most means more than half"
OTHER_MAJORITIES = (0.75, 0.9)

COMPARABLE = 0.03  # of the answers
WHY_COMPARABLE = "comparable means at most 3 percentage points fewer right answers"
OTHER_DISTANCES = (0.01, 0.05)

DECENT = 0.9  # of the accuracy of the dense model
WHY_DECENT = "decent means nine tenths of the dense model's accuracy; the source names no number"
OTHER_FRACTIONS = (0.8, 0.95)

WHY_OWN_NUMBER = "the source's own number"
