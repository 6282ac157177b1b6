"""B. Chen, Sparsity for Efficient Long Sequence Generation: a longer version of the same talk."""

from course_lib.workbook.ledger.record import Source, Statement

SOURCE = Source(
    title="Sparsity for Efficient Long Sequence Generation, a longer version",
    about="B. Chen, CMU and FAIR: the same talk with more slides and two tables",
    same_as="What both versions say stands above, chen-1 to chen-69; here is what this one adds.",
    statements=(
        Statement(
            id="chen-longer-1",
            at="LLMs are Very Expensive to Deploy (models)",
            says="The size of models grows exponentially.",
            why_not="history, not a finding about sparsity",
        ),
        Statement(
            id="chen-longer-2",
            at="LLMs are Very Expensive to Deploy (lengths)",
            says="Memory grows with the text that is read, until the machine has no more.",
            claim="start-cache-linear",
        ),
        Statement(
            id="chen-longer-3",
            at="LLMs are Very Expensive to Deploy (lengths)",
            says="Log-perplexity rises once the text is longer than those of training.",
            claim="sinks-dense-beyond",
        ),
        Statement(
            id="chen-longer-4",
            at="H2O: Throughput and Latency, first table",
            says="On an A100 H2O makes 1.9 times as many tokens a second as FlexGen, in as much less time.",
            why_not="a serving system on a GPU, which nothing here runs; chen-6 asks for the factor on a processor",
            published="494 and 918 tokens a second, 99 and 53 s",
        ),
        Statement(
            id="chen-longer-5",
            at="H2O: Throughput and Latency, second table",
            says="On a T4 H2O makes 18.83 tokens a second where three other systems make 0.6 to 8.5.",
            why_not="three serving systems on a GPU, which nothing here runs",
            published="0.6, 0.6, 8.5 and 18.83 tokens a second",
        ),
        Statement(
            id="chen-longer-6",
            at="Infinite Streaming Ability",
            says="A stream with sinks forgets what it read in the middle.",
            claim="kv-forgets-the-middle",
        ),
        Statement(
            id="chen-longer-7",
            at="Deja Vu: 2x and 6x, table",
            says="By chosen heads and neurons alone four tasks lose nothing.",
            claim="dejavu-few-of-both",
            published="0.86, 0.446, 0.726, 0.758 dense; 0.85, 0.45, 0.726, 0.753 chosen (OPT-175B)",
        ),
        Statement(
            id="chen-longer-8",
            at="Quiz",
            says="100 tokens of the same distribution may take fewer than 100 passes.",
            claim="sparse_attention-fewer-loads",
        ),
    ),
)
