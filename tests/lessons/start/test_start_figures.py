"""The titles of the figures of lesson 00 are computed from the data that they show."""

import pytest
import torch
from figure_titles import title

from course_lib.lessons.start import plots
from course_lib.lessons.start.plots import block_drawing, layer_by_layer, old_and_new_time
from course_lib.measure.roofline import LLAMA2_7B, Device, Transformer, Work
from course_lib.measure.timing import Timing

DEVICE = Device("by hand", 100e9, 10e9, "made up")


def test_roofline():
    one = Timing("decode", 1, Work(1e9, 2e9), seconds=0.4)
    many = Timing("prefill", 64, Work(64e9, 2e9), seconds=0.8)
    figure = plots.roofline(DEVICE, [many, one])
    assert title(figure) == "1 token per pass: 2.5 % of peak arithmetic; 64 per pass: 80 %"
    roof = figure.axes[0].lines[0]
    assert list(roof.get_xdata())[1] == DEVICE.ridge == 10
    assert list(roof.get_ydata())[1] == 100
    points = {(round(x, 3), round(y, 3)) for line in figure.axes[0].lines[1:] for x, y in line.get_xydata()}
    assert points == {(0.5, 2.5), (32.0, 80.0)}


def test_a_block_has_seven_matrices_and_four_inputs():
    """8 numbers per token, 4 query heads of 2 on 2 key-value heads, 16 neurons: 3 · 16 · 8 of 576 weights."""
    sizes = Transformer(n_blocks=3, width=8, n_query=4, n_key_value=2, head_size=2, n_neurons=16, vocabulary=10)
    figure = block_drawing(sizes)
    texts = {text.get_text() for text in figure.axes[0].texts}
    shapes = {
        "q": "8 × 8",
        "k": "4 × 8",
        "v": "4 × 8",
        "o": "8 × 8",
        "gate": "16 × 8",
        "up": "16 × 8",
        "down": "8 × 16",
    }
    assert {f"{name}_proj\n{shape}" for name, shape in shapes.items()} | {"1", "2", "3", "4", "+"} <= texts
    assert any("4 query heads,\n2 key-value heads:\n2 query heads\nshare each" in text for text in texts)
    assert title(figure) == "One of 3 blocks: seven matrices with four inputs; the MLP has 67 % of the weights"


def test_memory():
    figure = plots.memory(LLAMA2_7B, 2, 4096, "Llama-2-7B")
    assert title(figure) == "A cache of 4,096 tokens adds 16 % to the weights of Llama-2-7B"  # 2.1 GB and 13.5 GB
    assert figure.axes[0].lines[1].get_ydata()[-1] == pytest.approx(2 * 32 * 4096 * 2 * 4096 / 1e9)


def test_parts():
    figure = plots.parts({"MLP matrices": 0.03, "everything else": 0.05}, {"MLP matrices": 10})
    assert title(figure) == "A step takes 80 ms, 62 % of it for: everything else"
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([37.5, 62.5, 100, 0])


def test_layers_run_one_after_the_other():
    flops, n_bytes = torch.tensor([2e11, 2e9], dtype=torch.float64), torch.tensor([1e9, 4e9], dtype=torch.float64)
    figure = layer_by_layer(flops, n_bytes, 1e11, 1e10, got=2.02, expected=2.4)
    bars = [(bar.get_x(), bar.get_width()) for bar in figure.axes[0].patches]
    assert bars == [pytest.approx(bar) for bar in ((0, 2), (0, 0.1), (2, 0.02), (2, 0.4))]
    assert title(figure) == "2 layers take 2.4 s, each as long as its longer bar"
    layer_by_layer(flops, n_bytes, 1e11, 1e10, got=flops, expected=2.4)  # several numbers: no line, and no error


@pytest.mark.parametrize(
    ("goal", "expected", "end"),
    [(4 / 3, 2.0, "the part must get 2 times faster"), (3.0, 0.0, "no factor is enough")],
)
def test_the_part_gets_the_time_that_the_rest_does_not_need(goal, expected, end):
    figure = old_and_new_time(0.5, goal, got=4.0, expected=expected)
    assert title(figure).endswith(end)
    yours, required, before = figure.axes[0].patches[3:]
    assert [bar.get_width() for bar in (yours, before)] == [0.125, 0.5]
    assert required.get_width() == pytest.approx(max(1 / goal - 0.5, 0))


@pytest.mark.real
def test_next_tokens(real_model):
    figure = plots.next_tokens(*real_model)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths == sorted(widths, reverse=True)
    assert 0 < sum(widths) <= 100
    assert "“Rome”" in title(figure)
    assert f"{widths[0]:.0f} %" in title(figure)
