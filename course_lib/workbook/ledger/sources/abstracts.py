"""A list of nine papers with their abstracts: eviction, sparse attention, steering, visual tokens."""

from course_lib.workbook.ledger.record import Claim, Source
from course_lib.workbook.ledger.rules import kv, sparse_attention, start

LONG = "long-context benchmarks of larger models"
PREFILL = "sparse_attention/experiments/sparse_attention: 2048: vertical-slash"
PREFILL_SPEED = "bench/cpu_sparse_prefill"
DELTA = "sparse_attention/experiments/delta"

SOURCE = Source(
    title="Nine abstracts",
    about="Scissorhands, EMS, Recycled Attention, FlexPrefill, H2O, D2O, AutoPASTA, DeltaLLM and VFlowOpt",
    claims=(
        Claim(
            id="abstracts-1",
            at="Scissorhands",
            says="A cache may become larger than the model.",
            rule=start.CACHE_EXCEEDS,
        ),
        Claim(
            id="abstracts-2",
            at="Scissorhands",
            says="Only tokens that mattered before will matter later.",
            rule=kv.PERSISTENCE,
            published="over 95 % in most layers",
        ),
        Claim(
            id="abstracts-3",
            at="Scissorhands",
            says="A cache 5 times smaller loses no quality.",
            rule=kv.FIVE_TIMES,
            published="5 times",
        ),
        Claim(
            id="abstracts-4",
            at="Scissorhands",
            says="With 4 bits it becomes 20 times smaller.",
            rule=kv.TWENTY_TIMES,
            published="20 times",
        ),
        Claim(
            id="abstracts-5",
            at="EMS",
            says="Sums of attention prefer old tokens.",
            rule=kv.SUM_IS_BIASED,
        ),
        Claim(
            id="abstracts-6",
            at="EMS",
            says="A score without that preference chooses better.",
            rule=kv.MEANS_READ_BETTER,
        ),
        Claim(
            id="abstracts-7",
            at="EMS",
            says="Evicting and merging reads better than other policies at the same size.",
            rule=kv.EMS_BEST,
        ),
        Claim(
            id="abstracts-8",
            at="EMS",
            says="It gains over 1.28 points on LongBench with 256 slots.",
            why_not=LONG,
            published="1.28 points, four models",
        ),
        Claim(
            id="abstracts-9",
            at="EMS",
            says="It finds 95 % of needles with less than 2 % of the text in the cache.",
            rule=kv.EMS_NEEDLES,
            published="95 % at under 2 %",
        ),
        Claim(
            id="abstracts-10",
            at="EMS",
            says="Heads differ in how sparse and how redundant they are.",
            why_not="measured per layer here, not per head",
        ),
        Claim(
            id="abstracts-11",
            at="Recycled Attention",
            says="Full attention now and then, and its choice in between, finds more than eviction does.",
            rule=kv.LOOKS_AGAIN,
            published="2 times the score",
        ),
        Claim(
            id="abstracts-12",
            at="Recycled Attention",
            says="Its speed is like that of methods that look at the newest tokens alone.",
            rule=kv.RECYCLED_SPEED,
        ),
        Claim(
            id="abstracts-13",
            at="Recycled Attention",
            says="The likeness of queries tells well when to look again.",
            rule=kv.BY_SIMILARITY,
        ),
        Claim(
            id="abstracts-14",
            at="Recycled Attention",
            says="Trained further with recycling, a model gains.",
            why_not="needs continued training of the language model",
        ),
        Claim(
            id="abstracts-15",
            at="FlexPrefill",
            says="Some heads need a pattern that depends on the query, others a fixed one.",
            rule=sparse_attention.BOTH_KINDS,
        ),
        Claim(
            id="abstracts-16",
            at="FlexPrefill",
            says="Entries that cover a given share of attention are better chosen than by fixed patterns.",
            awaits=PREFILL,
        ),
        Claim(
            id="abstracts-17",
            at="FlexPrefill",
            says="Long prompts are read faster, at no loss.",
            awaits=PREFILL_SPEED,
        ),
        Claim(
            id="abstracts-18",
            at="H2O",
            says="A small share of tokens contributes most of the attention.",
            rule=kv.FEW_CARRY_MOST,
        ),
        Claim(
            id="abstracts-19",
            at="H2O",
            says="Heavy hitters are words that occur often beside others.",
            why_not="lesson 07 asks it live, of texts that the student chooses; no result of it is committed",
        ),
        Claim(
            id="abstracts-20",
            at="H2O",
            says="Without heavy hitters a model degrades, the first token aside.",
            rule=kv.MASKED_BUT_FIRST,
        ),
        Claim(
            id="abstracts-21",
            at="H2O",
            says="Greedy eviction is near the best where what is kept is worth less the more there is.",
            why_not="a theorem with assumptions",
        ),
        Claim(
            id="abstracts-22",
            at="H2O",
            says="Heavy hitters beside newest tokens are the better cache at a fifth of the text.",
            rule=kv.THAN_SINKS,
        ),
        Claim(
            id="abstracts-23",
            at="H2O",
            says="Throughput grows up to 29, 29 and 3 times, latency falls 1.9 times.",
            why_not="three serving systems for GPUs, which nothing here runs; chen-6 asks for 1.9 times on a processor",
            published="29, 29, 3 and 1.9 times",
        ),
        Claim(
            id="abstracts-24",
            at="D2O",
            says="Attention is denser in shallow layers than in deep ones.",
            rule=kv.SHALLOW_DENSER,
        ),
        Claim(
            id="abstracts-25",
            at="D2O",
            says="Merging what leaves into what is like it keeps more than eviction alone.",
            rule=kv.D2O_MERGES,
        ),
        Claim(
            id="abstracts-26",
            at="D2O",
            says="Throughput grows over 3 times.",
            why_not="a serving batch on a GPU",
            published="over 3 times",
        ),
        Claim(
            id="abstracts-27",
            at="AutoPASTA",
            says="A model can name the sentence that its answer needs.",
            rule=sparse_attention.NAMES_THE_KEY,
        ),
        Claim(
            id="abstracts-28",
            at="AutoPASTA",
            says="Attention steered to that sentence makes answers more faithful than prompting does.",
            rule=sparse_attention.STEERED,
        ),
        Claim(
            id="abstracts-29",
            at="AutoPASTA",
            says="Answers of a model of 70 billion parameters improve by 7.95 %.",
            why_not="needs that model",
            published="7.95 %",
        ),
        Claim(
            id="abstracts-30",
            at="DeltaLLM",
            says="From token to token keys change little, so that small changes need not be computed.",
            awaits=DELTA,
        ),
        Claim(
            id="abstracts-31",
            at="DeltaLLM",
            says="Full attention nearby and differences farther away lose nothing at 60 % sparsity.",
            awaits=DELTA,
            published="60 % prefilling, 57 % both stages",
        ),
        Claim(
            id="abstracts-32",
            at="DeltaLLM",
            says="On a task of questions the score even rises, from 29.63 to 30.97.",
            why_not="two larger models and their tasks",
            published="29.63 and 30.97",
        ),
        Claim(
            id="abstracts-33",
            at="VFlowOpt",
            says="Attention and entropy together tell which visual tokens matter.",
            rule=sparse_attention.BOTH_SIGNALS,
        ),
        Claim(
            id="abstracts-34",
            at="VFlowOpt",
            says="What leaves is better recycled than dropped.",
            rule=sparse_attention.RECYCLED,
        ),
        Claim(
            id="abstracts-35",
            at="VFlowOpt",
            says="A tenth of the visual tokens keeps the performance.",
            rule=sparse_attention.A_TENTH,
            published="90 % pruned",
        ),
        Claim(
            id="abstracts-36",
            at="VFlowOpt",
            says="Settings found by what the last token sees are better than settings by hand.",
            rule=sparse_attention.CALIBRATED,
        ),
        Claim(
            id="abstracts-37",
            at="VFlowOpt",
            says="That is 89 % less cache and 3.8 times the speed.",
            why_not="the memory and the clock of a large model's server",
            published="89 %, 3.8 times",
        ),
    ),
)
