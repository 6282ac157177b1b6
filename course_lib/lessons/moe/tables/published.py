"""What the papers report, marked as published."""

from course_lib.lessons.common.tables import load_published, rows


def losses() -> str:
    """Shazeer's Table 6: what the two losses do to perplexity and loads."""
    lines = [f"{'published: weight of importance':<34}{'of load':>10}{'perplexity':>12}{'largest / mean load':>22}"]
    for row in rows(load_published("moe"), "shazeer_losses"):
        weights = f"{row['importance']:<34g}{row['load']:>10g}"
        lines.append(f"{weights}{row['perplexity']:>12.1f}{row['largest_over_mean']:>22.2f}")
    return "\n".join(lines)


def switch() -> str:
    """Switch's Table 1: top-1 and top-2 at two capacities, beside a dense model."""
    lines = [f"{'published':<18}{'capacity factor':>17}{'negative log perplexity':>26}{'examples a second':>20}"]
    for row in rows(load_published("moe"), "switch_capacity"):
        factor = "" if row["capacity_factor"] is None else f"{row['capacity_factor']:g}"
        numbers = f"{row['quality']:>26.3f}{row['examples_per_second']:>20,}"
        lines.append(f"{row['model']:<18}{factor:>17}{numbers}")
    return "\n".join(lines)


def exploration() -> str:
    """Switch's Table 11: how the router explores while it is trained."""
    lines = [f"{'published: while training':<38}{'negative log perplexity':>26}"]
    for row in rows(load_published("moe"), "switch_exploration"):
        lines.append(f"{row['router']:<38}{row['quality']:>26.3f}")
    return "\n".join(lines)
