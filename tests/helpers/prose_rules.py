"""Phrases that a native speaker, or an author in this field, would not write; what to write instead, and why.

False alarms are worse than misses: a rule is here if what it finds is wrong nearly everywhere. A test tries each rule
on its two examples.
"""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Rule:
    """A phrase as a regular expression, of texts in which every passage is one line."""

    pattern: str
    instead: str
    reason: str
    wrong: str
    right: str
    is_exact: bool = False  # upper and lower case count

    @cached_property
    def compiled(self) -> re.Pattern:
        return re.compile(self.pattern, re.MULTILINE if self.is_exact else re.MULTILINE | re.IGNORECASE)


START = r"(?:^|(?<=[.:;!?] ))"  # of a sentence
THING = (
    r"(?:models?|neurons?|heads?|layers?|blocks?|methods?|routers?|experts?|caches?|titles?|verdicts?|gradients?|norms?|"
    r"predictors?|tokens?|weights?|sums?|ratios?|sentences?|prompts?|recipes?|activations?|drafts?|MLPs?|projections?)"
)
TEXT = r"(?:papers?|lectures?|sections? \d+|code|figures?|tables?|titles?|authors?|slides?|abstracts?)"
UNIT = (
    r"(?:bits?|nats?|bytes?|[KMGT]i?B|FLOPs?|(?:milli|micro)?seconds|minutes|ms|[µu]s|tokens?|neurons?|experts?|rows?|"
    r"products?|loads?|pass|passes|multiplications?|vectors?|numbers?|cells?|values|points|questions|characters|lines|"
    r"copies|steps|times|cases|folders?|files?)"
)
PER = (
    r"(?:token|weight|byte|row|column|value|second|minute|block|head|entry|pass|step|neuron|channel|layer|input|window|"
    r"position|number|expert|batch|lesson|subject|paper|exercise|student|question|answer|case|seed|line|group|tile|"
    r"parameter|product|query)"
)
ACTOR = "the actor is the student (you) or the lesson (we)"
ARCHAIC = "archaic"
COMPUTES = "tensors, layers and models have no mind"
TERM = "the field has a term"

# fmt: off
RULES = (
    Rule(r"\bwho(?:m|so)?ever\b", "if you …, a model that …", ACTOR,
         wrong="Whoever prunes needs text.", right="To prune, you need text."),
    Rule(START + r"Who [a-z]+s\b(?=[^?\n]*?[.;])", "if you …", ACTOR,
         wrong="Who prunes first rounds less.", right="Who prunes first?", is_exact=True),
    Rule(r"(?<!\bwhich )(?<!\beach )(?<!\bthis )(?<!\bbest )(?<!\breal )\bone (?:can|could|has to|had to|must|needs|"
         r"would|might|wants|sees|saw|should|cuts|knew|knows|finds|hopes|gets|takes)\b"
         r"|\b(?:does|can|how|could|should|must|if) one\b(?!-| (?:of|or|in|rank)\b)", "we, you", ACTOR,
         wrong="So one has to count first.", right="So we count first. Which one would you take?"),
    Rule(r"\b(?:no|some|every)body\b(?! spoke)", "name the actor", ACTOR,
         wrong="It gives its weight to nobody.", right="It gives its weight to no token, and nobody spoke."),
    Rule(r"\bdear(?:er|est|ly)?\b", "expensive", ARCHAIC,
         wrong="A backward pass is dear.", right="A backward pass is expensive."),
    Rule(r"\bforetell(?:s|ing)?\b|\bforetold\b", "predict", ARCHAIC,
         wrong="as their bytes foretell", right="as their bytes predict"),
    Rule(r"\bheed(?:s|ed|ing)?\b(?!,)", "attend to, follow", ARCHAIC,
         wrong="Heed this sentence.", right="Attend to this sentence."),
    Rule(r"\bshall\b", "should, will", ARCHAIC,
         wrong="Which weights shall we keep?", right="Which weights should we keep?"),
    Rule(r"\b(?:anew|afresh)\b", "again, from scratch", ARCHAIC,
         wrong="The window is read afresh.", right="We recompute the window from scratch."),
    Rule(r"\b(?:there|here|where)(?:of|in|upon|with)\b|\bhitherto\b", "of it, in it, so far", ARCHAIC,
         wrong="the mask and the rows therein", right="the mask and its rows"),
    Rule(r"\bbut for\b", "except for, apart from", ARCHAIC,
         wrong="the same but for rounding", right="the same except for rounding"),
    Rule(r"\b(?:to|can|could) be had\b", "available", ARCHAIC,
         wrong="Their tables were not to be had.", right="Their tables were not available."),
    Rule(r"\bwhat (?:of|becomes? of|became of)\b", "what about, what happens to", ARCHAIC,
         wrong="What of the other heads?", right="What about the other heads?"),
    Rule(r"\bbeside\b", "next to, compared with, in addition to", ARCHAIC,
         wrong="its results beside Wanda's", right="its results next to Wanda's; besides, it is faster"),
    Rule(r"\bbehind\b(?! the (?:scenes|idea))", "after, following", "an order is no place",
         wrong="a question behind twelve articles", right="a question after twelve articles; behind the scenes"),
    Rule(r"\bst(?:ands?|ood)\b(?! (?:out|for)\b)", "is, appears", "things do not stand",
         wrong="Under each exercise stands a check.", right="N stands for the number of tokens."),
    Rule(rf"\b{THING} (?:that \w+ )?(?:says?|said|knows?|knew|hears?|heard|feels?|felt|listens?|wants?|thinks?|asks?|"
         r"asked)\b",
         "computes, outputs, contributes, receives, encodes, predicts", COMPUTES,
         wrong="Each neuron says how much.", right="Each neuron contributes this much."),
    Rule(r"\blessons? \d\d (?:knows?|has|had|asks|answers|says)\b", "introduces, covers, shows", "a lesson is a text",
         wrong="Lesson 05 knows heads already.", right="Lesson 05 introduces heads."),
    Rule(rf"\b{TEXT} (?:has|have|had) (?:it|them|the|these|no|more|both|\d+|an?|other|times)\b",
         "reports, lists, shows, uses", "a text owns nothing",
         wrong="The paper has the numbers.", right="The paper reports the numbers."),
    Rule(START + r"(?:(?:[A-Z][a-z]+ed|Told apart|Kept|Shown|Drawn|Written|Left) (?:is|are|was|were)"
         r"|(?:Stored|Read|Coloured|Dark|Missing|Clearly ahead|Beside (?:it|each|them)|Behind (?:it|them)|Under each"
         r"|Above each|At the end)\b[^.?!\n]{0,60}?\b(?:is|are|stands?|lies?)) (?:the|an?|only|its|all|those|what|X)\b",
         "subject first, then verb", "the order of a German sentence",
         wrong="Stored are only the values.", right="We store only the values.", is_exact=True),
    Rule(START + r"What (?:is|are|was|were|stays|leaves|remains|goes|breaks|an?|the|it|they|we|you|one|counts|costs|"
         r"happens)\b(?=[^?\n]*?[.;])", "start with the noun", "a sentence that opens with a what-clause is read twice",
         wrong="What breaks least is not what is repaired best.", right="What breaks? The first layer.", is_exact=True),
    Rule(r"\bby lots?\b|\blots\b(?! of\b)|(?<!\ba )(?<!whole )\blot\b(?! of\b)", "at random, random baseline", TERM,
         wrong="blocks drawn by lot", right="blocks chosen at random cost a lot"),
    Rule(r"\breads? (?:\w+ ){0,2}(?:better|worse|well)\b", "has lower, higher, the same perplexity", TERM,
         wrong="The pruned model reads nearly as well.", right="The pruned model has nearly the same perplexity."),
    Rule(rf"\b{UNIT} an? {PER}\b(?!-)", "per", "a rate",
         wrong="4 bits a weight", right="4 bits per weight in a row of weights"),
    Rule(r"\b(?:weights?|neurons?|heads?|channels?|columns?) (?:that |which )?(?:may |can |must |has |have |will )?"
         r"(?:leaves?|left|leaving|gone|goes|go)\b", "is pruned, evicted, skipped", TERM,
         wrong="the neurons that leave", right="the neurons that are pruned"),
    Rule(r"\bsettl(?:e|es|ed|ing)\b", "freeze, process, decide", TERM,
         wrong="Every row settles its columns.", right="Every row freezes its columns."),
    Rule(r"\b(?:loud(?:er|est|ness)?|silen(?:t|ce|ces|ced|cing))\b", "large-magnitude, zero, ablated", TERM,
         wrong="its loudest neurons", right="its neurons with the largest activations"),
    Rule(r"\b(?:go|goes|went|gone) over\b", "transfer; be taken over", TERM,
         wrong="The paper says that prompts go over.", right="The paper claims that prompts transfer."),
    Rule(r"\bbeginnings\b|\b(?:from|of) (?:each|every|both|one|two|three|another|other|larger|first) "
         r"(?:beginnings?|first weights)\b", "seed, initialisation", TERM,
         wrong="from each beginning", right="with every seed, from the beginning of each text"),
    Rule(r"\b(?:answers?|tokens?|prompts?|sequences?) at once\b", "batch size, in parallel", TERM,
         wrong="16 answers at once", right="batch size 16"),
    Rule(r"\bthe clock\b(?! (?:rate|speed|frequency))", "wall-clock time, latency", TERM,
         wrong="slower on the clock", right="longer wall-clock time"),
    Rule(r"\btold apart\b|\btells? \w+ apart\b|\b(?:can|could|not) be told\b", "distinguishable, significant", TERM,
         wrong="The two cannot be told apart.", right="The difference is not significant."),
    Rule(r"(?:\b(?:an?|the|its|their|each|every|same|no|what|which) |^|, )shares? of\b|\bshares of\b", "fraction", TERM,
         wrong="the share of zeros", right="the fraction of zeros in heads that share a cache"),
    Rule(r"\btwins?\b", "matched control, reference implementation", TERM,
         wrong="Jitter is ahead of its twin.", right="Jitter is ahead of its matched control."),
    Rule(r"\bone set for all\b", "static mask", TERM,
         wrong="one set for all tokens", right="a static mask"),
    Rule(r"\b(?:by|of|with|pure|good|bad|mere) luck\b", "random trial, seed, chance", TERM,
         wrong="a gain by luck alone", right="a gain within the variation between random trials"),
    Rule(r"\bthe (?:source|original) (?:lecture|deck)\b|\bthe talk on\b", "author and title", "a reader must find it",
         wrong="the talk on H2O", right="Zhang and others (H2O, 2023)"),
)
# fmt: on
