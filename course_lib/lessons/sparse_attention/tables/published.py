"""What the papers' abstracts report, beside which ours stand."""

from course_lib.lessons.common.tables import load_published, percent, rows


def delta() -> str:
    """Shares of the operations that DeltaLLM leaves out."""
    lines = [f"{'published, abstract':<26}{'prefill':>10}{'with decoding':>16}{'F1 before':>12}{'after':>8}"]
    for row in rows(load_published("sparse_attention"), "deltallm"):
        f1 = f"{row['f1_before']:>12.2f}{row['f1_after']:>8.2f}" if "f1_before" in row else ""
        lines.append(f"{row['model']:<26}{percent(row['prefill']):>10}{percent(row['both']):>16}{f1}")
    return "\n".join(lines)


def steering() -> str:
    """The mean gain that AutoPASTA reports."""
    row = rows(load_published("sparse_attention"), "autopasta")[0]
    return f"published, abstract: {row['model']} answers {row['improvement']:.2f} % better on average with AutoPASTA"


def speculative() -> str:
    """How much faster the authors of speculative decoding decode."""
    row = rows(load_published("sparse_attention"), "speculative")[0]
    return f"published, abstract: {row['model']} decodes {row['least']} to {row['most']} times faster, same outputs"
