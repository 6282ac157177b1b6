"""B. Chen, Sparsity for Efficient Long Sequence Generation: a longer version of the same talk."""

from course_lib.workbook.ledger.record import Label, Source, Statement

SOURCE = Source(
    title="Sparsity for Efficient Long Sequence Generation, a longer version",
    about="B. Chen, CMU and FAIR: the same talk with more slides and two tables",
    same_as="Statements of both versions are listed above, chen-1 to chen-69; this list holds those of the longer one.",
    statements=(
        Statement(
            id="chen-longer-1",
            at="LLMs are Very Expensive to Deploy (models)",
            says="The size of models grows exponentially.",
            label=Label.NO_FINDING,
            why_not="history, not a finding about sparsity",
        ),
        Statement(
            id="chen-longer-2",
            at="LLMs are Very Expensive to Deploy (lengths)",
            says="Memory grows with the length of the input until the GPU has no more.",
            claim="start-cache-linear",
        ),
        Statement(
            id="chen-longer-3",
            at="LLMs are Very Expensive to Deploy (lengths)",
            says="Log perplexity rises once the input is longer than the pretrained length.",
            claim="sinks-far-positions",
        ),
        Statement(
            id="chen-longer-4",
            at="H2O: Throughput and Latency, first table",
            says="On an A100 H2O has 1.9 times FlexGen's throughput and latency.",
            label=Label.FROM_SOURCE,
            why_not="the table's own ratios: 918 / 494 = 1.86 and 99 / 53 = 1.87",
            published="494 and 918 tokens per second, 99 and 53 s",
        ),
        Statement(
            id="chen-longer-5",
            at="H2O: Throughput and Latency, second table",
            says="On a T4 H2O has 3 to 29 times the throughput of three systems.",
            label=Label.FROM_SOURCE,
            why_not="the table's own ratios: 18.83 / 8.5 = 2.2 and 18.83 / 0.6 = 31, not 3 and 29",
            published="0.6, 0.6, 8.5 and 18.83 tokens per second",
        ),
        Statement(
            id="chen-longer-6",
            at="Infinite Streaming Ability",
            says="StreamingLLM forgets the middle of the context.",
            label=Label.BY_CONSTRUCTION,
            why_not="what lies between the sinks and the window is evicted and cannot be attended to; lesson 07 "
            "measures questions about it",
        ),
        Statement(
            id="chen-longer-7",
            at="Deja Vu: 2x and 6x, table",
            says="With heads and neurons chosen by Deja Vu, four tasks lose no accuracy.",
            label=Label.FROM_SOURCE,
            why_not="-1.0, +0.4, 0.0 and -0.5 points on the four tasks, -0.3 on average",
            published="0.86, 0.446, 0.726, 0.758 dense; 0.85, 0.45, 0.726, 0.753 chosen (OPT-175B)",
        ),
        Statement(
            id="chen-longer-8",
            at="Quiz",
            says="100 tokens of the same distribution can be generated with fewer than 100 loads of the model.",
            claim="sparse_attention-can-load-fewer",
        ),
        Statement(
            id="chen-longer-9",
            at="Demo",
            says="StreamingH2O holds 1,000 to 1,004 slots.",
            label=Label.BY_CONSTRUCTION,
            why_not="the policy's budget",
        ),
    ),
)
