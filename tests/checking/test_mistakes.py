"""The text of named mistakes: what it says becomes functions, and whatever cannot be read is refused with its line."""

import ast
from pathlib import Path

import pytest

from course_lib.checking.mistakes import names_used, parsed, read_mistakes

TEXT = """# made.mean(values, scale)

- **not divided**: A mean is a sum divided by the number of values,
  whatever the scale is.
  - `sum(values) * scale`
  - `total = sum(values); return total * scale`
- **another count**: Divide by the number of values.
  - `count = len(values) + more` for `more` in `1, 2`
  - `values = values[1:]`
  - `_first`
"""
MEAN = '''
def mean(values, scale):
    """The mean."""
    total = 0
    for value in values:
        total += value
    count = len(values)
    if count:
        low, high = 0, 1
    return scale * total / count


def _first(values, scale):
    return values[0]


lambda_mean = lambda values, scale: 0


def factory(count):
    def inner(values, scale):
        total = count
        return total

    return inner


closure = factory(3)
'''


def made(folder: Path, text: str, reference: str = "mean"):
    """The mistakes of an exercise with that text, which lies in a folder."""
    source = folder / "mean.py"
    source.write_text(MEAN, encoding="utf-8")
    source.with_suffix(".md").write_text(text, encoding="utf-8")
    names = {"__file__": str(source)}
    exec(compile(MEAN, str(source), "exec"), names)
    return read_mistakes(names, steps_of=names[reference])


def of_steps(folder: Path, *codes: str, reference: str = "mean"):
    lines = "\n".join(f"  - `{code}`" for code in codes)
    return made(folder, f"# made.mean(values, scale)\n\n- **m**: n\n{lines}\n", reference)[0].functions


def test_a_text_becomes_mistakes_with_their_variants(tmp_path):
    text = TEXT.replace("total = sum(values); return", "return")
    not_divided, another = made(tmp_path, text)
    assert (not_divided.name, another.name) == ("not divided", "another count")
    assert not_divided.explanation == "A mean is a sum divided by the number of values, whatever the scale is."
    assert [function([2, 4, 9], 2) for function in not_divided.functions] == [30, 30]
    assert [function([2, 4, 9], 2) for function in another.functions] == [30 / 4, 30 / 5, 2 * 13 / 2, 2]
    assert not_divided.function is not_divided.functions[0]


def test_steps_replace_those_of_the_reference_and_nothing_else(tmp_path):
    codes = (
        "total += 2 * value",
        "count = len(values); count = count - 1",
        "low, high = 1 / 0",
        "return total, count; return 0",
        "scale = scale + 1; values = values[:2]",
    )
    doubled, one_less, raises, both, changed = of_steps(tmp_path, *codes)
    values = [2, 4, 9]
    assert [f(values, 3) for f in (doubled, one_less, both, changed)] == [30.0, 22.5, (15, 3), 12.0]
    with pytest.raises(ZeroDivisionError):
        raises(values, 3)
    assert values == [2, 4, 9]


def test_a_step_that_uses_its_own_result_comes_after_the_references(tmp_path):
    doubled, parameter, both = of_steps(
        tmp_path, "count = 2 * count", "scale = 10 * scale", "scale, values = 1, values[1:]; count = count + 1"
    )
    assert doubled([2, 4, 9], 2) == 15 / 3 * 2 / 2
    assert parameter([2, 4, 9], 2) == 100
    assert both([2, 4, 9], 2) == 13 / 3


def test_a_variant_is_compiled_when_it_is_first_called(tmp_path):
    broken, fine = of_steps(tmp_path, "nothing = 3", "return 7")  # is read without a complaint
    assert "function" not in vars(fine)
    assert fine([1], 1) == 7
    assert fine.function is fine.function
    with pytest.raises(ValueError, match=r"mean\.md, line 4: got 'nothing'"):
        broken([1], 1)


def test_a_variant_says_what_it_is_as_python(tmp_path):
    (_, another) = made(tmp_path, TEXT)
    count, _, values, first = another.functions
    assert ast.unparse(count.written).endswith("return scale * total / count")
    assert "count = len(values) + 1" in ast.unparse(count.written)
    assert ast.unparse(first.written) == "_first"
    (expression,) = of_steps(tmp_path, "values")
    assert ast.unparse(expression.written) == "lambda values, scale: values"
    assert repr(values).endswith("mean.md, line 9: values = values[1:]>")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return (", "line 4: 'return \\(' is no Python: '\\(' was never closed"),
        (
            "mean = 3",
            "line 4: got 'mean', which is 0 steps of mean; expected one of total, count, return, total \\+=, low, high",
        ),
        ("low = 3", "line 4: got 'low', which is 0 steps of mean"),
        ("total = 3; del total", "line 4: got 'del total', which is .* steps of mean"),
        ("for x in values: 3", "got 'for x in values:.*steps of mean"),
    ],
)
def test_a_step_that_is_none_is_refused(tmp_path, code, message):
    (variant,) = of_steps(tmp_path, code)
    with pytest.raises(ValueError, match=message):
        variant([1], 1)


@pytest.mark.parametrize("reference", ["lambda_mean", "closure"])
def test_steps_need_a_reference_whose_source_is_a_definition(tmp_path, reference):
    (variant,) = of_steps(tmp_path, "total = 3", reference=reference)
    with pytest.raises(ValueError, match=r"line 4: 'total = 3' replaces steps; expected .*steps_of=REFERENCE"):
        variant([1], 1)


def test_steps_need_the_parameters_of_the_reference(tmp_path):
    (mistake,) = made(tmp_path, "# made.mean(x, scale)\n- **m**: n\n  - `total = 3`\n")
    with pytest.raises(ValueError, match="line 3: the heading has the parameters x, scale; expected those of mean"):
        mistake.function([1], 1)


def test_a_step_that_the_reference_has_twice_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(
        globals(), "MEAN", MEAN.replace("count = len(values)\n", "count = 1\n    count = len(values)\n")
    )
    (variant,) = of_steps(tmp_path, "count = 3")
    with pytest.raises(ValueError, match="got 'count', which is 2 steps of mean"):
        variant([1], 1)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("# made.mean(values, scale)", "# made.mean", "line 1: got '# made.mean'; expected a heading such as"),
        ("# made.mean(values, scale)", "", "line 3: got '- \\*\\*not divided.*expected a heading such as"),
        ("- **another count**:", "- **another count**", "line 7: got '- \\*\\*another count.*expected '- \\*\\*name"),
        ("  - `sum(values) * scale`", "  - `sum(values) * scale", "line 5: got '  - `sum.*expected '- \\*\\*name"),
        ("in `1, 2`", "in `1 2`", "line 8: the values in 'for `more` in `1 2`' are no Python"),
        ("in `1, 2`", "in 1, 2", "line 8: got .*expected '- \\*\\*name"),
        ("- **not divided**", "  - `3`\n- **not divided**", "line 3: got '  - `3`'; expected '- \\*\\*name"),
        ("  - `_first`\n", "- **none**: Nothing below.\n", "the mistake 'none' has no variant"),
        ("# made", "  # made", "line 1: got '  # made.*nothing above it"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(before, after, message):
    assert before in TEXT
    with pytest.raises(ValueError, match=rf"mean\.md(, |: ){message}"):
        parsed(TEXT.replace(before, after), "mean.md")


def test_an_empty_text_is_refused():
    with pytest.raises(ValueError, match="line 1: got ''; expected a heading"):
        parsed("", "mean.md")


def test_names_of_a_text_are_those_of_variants_and_of_the_values_of_loops():
    text = TEXT.replace("in `1, 2`", "in `_one, _two`")
    assert {"_one", "_two", "_first", "sum", "total"} <= names_used(text)
    assert not {"values", "scale", "whatever"} & names_used(text)
