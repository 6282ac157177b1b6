"""Where each line of the ledger is tried on made-up rows, for the verdicts that it can give."""

import ast
from pathlib import Path

import pytest

from course_lib.workbook.ledger.everything import all_rules

LESSONS = Path(__file__).parents[2] / "lessons"
TRIED = {
    "classic/test_classic_figures.py::test_verdicts_turn_with_the_data": (
        "classic-xor-right classic-xor-choice classic-monks-1 classic-monks-2 classic-monks-3 classic-monks-fewer "
        "classic-digits classic-rows"
    ),
    "classic/test_retraining_claims.py::test_the_sparsity_nearest_to_70_is_judged": (
        "classic-retrained classic-obd-harms"
    ),
    "classic/test_retraining_claims.py::test_pruned_networks_on_all_robots": "classic-generalise",
    "classic/test_small_networks.py::test_the_order_is_judged_situation_by_situation": "classic-fisher-order",
    "compress/test_prompts_tables.py::test_gains_beside_the_control": "compress-own compress-beyond-dense",
    "compress/test_prompts_tables.py::test_sentences_against_tokens_by_lot": "compress-sentence",
    "compress/test_prompts_tables.py::test_what_goes_over_by_hand": "compress-moves",
    "compress/test_prompts_tables.py::test_eight_times_smaller_without_loss": (
        "compress-eight-times compress-without-loss"
    ),
    "compress/test_prompts_tables.py::test_tasks_with_signal_alone": "compress-tasks",
    "compress/test_written_claims.py::test_words_beside_vectors": "compress-than-written",
    "dejavu/test_dejavu_measured.py::test_what_an_oracle_needs": (
        "dejavu-few-heads dejavu-few-neurons dejavu-few-of-both"
    ),
    "dejavu/test_dejavu_measured.py::test_levels_of_context": "dejavu-context-helps",
    "dejavu/test_dejavu_measured.py::test_zeros_behind_relu": "dejavu-relu-zeros",
    "dejavu/test_dejavu_measured.py::test_heads_batches_and_rounding": (
        "dejavu-heads-differ dejavu-batch dejavu-rounded"
    ),
    "dejavu/test_dejavu_measured.py::test_slow_change_counts_blocks": "dejavu-slow dejavu-residual-dominates",
    "dejavu/test_dejavu_measured.py::test_search_beside_the_layer": "dejavu-nearest",
    "dejavu/test_dejavu_measured.py::test_predictors": (
        "dejavu-predictor-gated dejavu-predictor-relu dejavu-predictor-cheap"
    ),
    "dejavu/test_dejavu_measured.py::test_predicted_heads_beside_one_set": "dejavu-predicted-heads",
    "dejavu/test_dejavu_measured.py::test_lookahead_compares_block_by_block": "dejavu-ahead",
    "dejavu/test_further_dejavu_claims.py::test_predictors_are_asked_for_twice_the_speed": "dejavu-twice",
    "dejavu/test_further_dejavu_claims.py::test_a_batch_beside_twice_one_sequence": "dejavu-batch-needs-more",
    "dejavu/test_further_dejavu_claims.py::test_one_kernel_beside_copies": "dejavu-one-kernel",
    "minitron/test_minitron_measured.py::test_claims_change_with_the_numbers": "minitron-lots",
    "minitron/test_minitron_measured.py::test_which_way_is_ahead_follows_the_windows": "minitron-width",
    "minitron/test_minitron_measured.py::test_what_is_left_of_the_loss_by_hand": "minitron-repaired",
    "minitron/test_minitron_measured.py::test_other_scores_and_aggregations_are_compared_in_pairs": (
        "minitron-aggregation"
    ),
    "minitron/test_minitron_equal_compute.py::test_claims_follow_the_windows": "minitron-equal-compute",
    "minitron/test_counted_claims.py::test_a_shape_counted_by_hand": "minitron-shapes-counted",
    "minitron/test_counted_claims.py::test_every_cut_must_be_faster": "minitron-cut-faster",
    "moe/test_moe_compared.py::test_experts_and_balance_have_a_case_a_seed": "moe-one-of-eight moe-balanced-top-1",
    "moe/test_moe_compared.py::test_jitter_is_compared_with_its_twin": "moe-jitter",
    "moe/test_moe_compared.py::test_a_z_loss_is_about_logits_and_about_its_cost": "moe-z-smaller",
    "moe/test_moe_tables.py::test_ends_collapse_and_specialisation_are_counted": "moe-collapse",
    "moe/test_moe_classic_measured.py::test_starts_are_compared_in_pairs": "moe-vowels-alone",
    "moe/test_moe_classic_measured.py::test_a_likelihood_that_falls_is_noticed": "moe-em-climbs",
    "moe/test_moe_classic_measured.py::test_experts_between_lstms_are_compared_window_by_window": "moe-recurrent",
    "moe/test_further_moe_claims.py::test_weights_and_products_are_counted": "moe-decoupled",
    "moe/test_further_moe_claims.py::test_problems_are_paired": "moe-sparse-mixer",
    "patterns/test_pattern_tables.py::test_an_order_that_is_broken_once_is_said_with_its_count": (
        "patterns-order-quarter patterns-order-half"
    ),
    "patterns/test_format_claims.py::test_on_a_gpu_each_number_of_tokens_counts": "patterns-on-a-gpu",
    "patterns/test_format_claims.py::test_a_bitmap_is_counted": "patterns-bitmap-smaller",
    "patterns/test_format_claims.py::test_csr_on_both_sides_of_dense": (
        "patterns-csr-no-faster patterns-csr-faster-when-smaller"
    ),
    "patterns/test_format_claims.py::test_packed_weights_beside_dense": "patterns-packed-no-faster",
    "sparsegpt/test_sparsegpt_results_figures.py::test_the_order_of_patterns_is_judged_by_method": (
        "sparsegpt-patterns"
    ),
    "sparsegpt/test_sparsegpt_results_figures.py::test_the_claims_to_take_home_follow_from_the_tables": (
        "sparsegpt-than-wanda-half sparsegpt-than-wanda-2-4 sparsegpt-near-the-best"
    ),
    "sparsegpt/test_beside_claims.py::test_below_magnitude": "sparsegpt-than-magnitude",
    "sparsegpt/test_beside_claims.py::test_each_pattern_is_one_timing": "sparsegpt-slower",
    "sparsegpt/test_beside_claims.py::test_three_points_are_close": "sparsegpt-accuracy-close",
    "start/test_size_claims.py::test_another_model_has_other_sizes": (
        "start-seven-billion start-hundred-tokens start-seventy-billion start-seventy-cache start-cache-exceeds"
    ),
    "start/test_size_claims.py::test_a_cache_that_does_not_grow_is_not_linear": "start-cache-linear",
    "wanda/test_wanda_figures.py::test_claims_follow_the_data": "wanda-accuracy wanda-patterns",
    "wanda/test_sweep_claims.py::test_a_sweep_that_climbs": (
        "wanda-sweep wanda-magnitude-harms wanda-magnitude-fails-early wanda-half-is-cheap wanda-two-four-is-cheap"
    ),
}


@pytest.mark.parametrize("test", TRIED)
def test_the_named_test_is_there(test):
    path, _, name = test.partition("::")
    tree = ast.parse((LESSONS / path).read_text(encoding="utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_every_line_is_tried_on_made_up_rows():
    tried = [name for names in TRIED.values() for name in names.split()]
    assert sorted(tried) == sorted(all_rules())
