"""Figures and sentences about two cues: what got worse is marked, and nothing is claimed that the
tables do not show."""

import os
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from browser import Browser, find_browser
from diagvib.papers.whac_a_mole.against_erm import whac_a_mole
from diagvib.papers.whac_a_mole.comparison import Comparison, comparisons
from diagvib.papers.whac_a_mole.finding import gap_sentences, loss_bars, reference_sentence
from diagvib.papers.whac_a_mole.gaps import MEASURES, METRIC_SET
from diagvib.papers.whac_a_mole.groups import GAPS
from diagvib.report.epochs import preference_curves
from diagvib.report.gap_figures import gap_bars, gap_figures, gap_pareto, not_beaten
from diagvib.report.sheets import contact_sheet, sheet_figures
from diagvib.report.style import HELD_OUT, TRAINED
from diagvib.results.metric_sets.metric_set import over_samples
from diagvib.studies.known_studies import SHIPPED, KnownStudies
from diagvib.studies.metric_needs import GAP_GROUPS
from reports import band_of, drawn_in, make_report, write_images
from synthetic_runs import configured, settings, tabulated
from synthetic_studies import changed_study
from test_gaps import BINDING, LATER, expected, losing, write

STUDY = "whac-95"
# Settings; in-distribution accuracy, gaps of cue 1 and 2, joint gap. The figure sorts them
# differently.
METHODS = {
    "all": (settings("group_dro", "cues"), (0.84, -0.08, -0.06, -0.2)),
    "first": (settings("group_dro", "cue-1"), (0.86, -0.05, -0.54, -0.6)),
    "same": (settings("mixup"), (0.93, -0.4, -0.3, -0.66)),
    "plain": (settings(), (0.93, -0.4, -0.3, -0.66)),
    "types": (settings("lle", "cue_types"), (0.92, -0.04, -0.3, -0.2)),
}


def tables(methods: dict = METHODS, samples: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """From the stated numbers, plus what the dataset samples share; None: no runs."""
    rows = []
    for run in expected(methods, STUDY, (BINDING,), samples):
        name, result = run["baseline"], methods[run["baseline"]][1]
        separate = 0.01 * (run["sample"] - (samples - 1) / 2)
        # `same` is sometimes above, sometimes below ERM; the others differ from it by a little more
        # or less.
        subject = (
            0.01 * (run["sample"] % 2) if name == "same" else 0.2 * separate * (name != "plain")
        )
        measured = [np.nan] * 5 if result is None else [*np.add(result, separate + subject), 0.1]
        rows.append({**run, **dict(zip(MEASURES, measured, strict=True))})
    values, baselines = pd.DataFrame(rows), {name: method for name, (method, _) in methods.items()}
    gaps = over_samples(values, MEASURES, baselines, METRIC_SET.differences)
    return gaps, whac_a_mole(values, baselines)


def compared(methods: dict = METHODS, **selection) -> Comparison:
    ((single,),) = comparisons(*tables(methods, **selection), SHIPPED).values()
    return single


def sentences(methods: dict = METHODS, **selection) -> list[str]:
    single = compared(methods, **selection)
    lost = [reference_sentence(single, item) for item in single.ran if item.is_reference]
    return [*lost, *gap_sentences(single)]


def bars_of(figure, panel: int) -> dict:
    bars = figure.axes[panel].patches
    return {bar.get_gid().removeprefix("tip: ").split(",")[0]: bar for bar in bars}


def texts_of(figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_what_got_worse_is_marked_with_its_difference():
    figure = gap_bars(compared())
    colours = {
        name: to_hex(bar.get_facecolor(), keep_alpha=True)
        for name, bar in bars_of(figure, 0).items()
    }
    assert colours["first"] == colours["all"] == f"{TRAINED}ff"
    assert colours["same"][-2:] == "00", "hollow if undecided"
    worse = bars_of(figure, 1)["first"]
    assert to_hex(worse.get_facecolor()) == HELD_OUT and worse.get_width() == pytest.approx(54)
    marked = [text for panel in range(3) for text in texts_of(figure, panel)]
    assert [text for text in marked if "(" in text] == ["54  (+24)"]
    tip = worse.get_gid()
    assert tip.startswith(
        "tip: first, labels of hue alone, where texture misleads: gap -54.0 points"
    )
    assert "; plain: gap -30.0, difference " in tip and "worse; n = 3 of 3 dataset samples" in tip
    assert "fixing one shortcut makes another worse" in figure.legends[0].get_title().get_text()


def test_methods_stand_by_their_supervision_with_erm_first():
    assert [item.baseline for item in compared().methods] == [
        "plain",
        "same",
        "types",
        "first",
        "all",
    ]


def test_nothing_is_drawn_where_nothing_ran():
    empty = {name: (output, None) for name, (output, _) in METHODS.items()}
    for draw in (gap_bars, gap_pareto):
        assert draw(compared(empty)) is None
    nothing = "No run of WHAC-95 has finished yet, so there are no numbers to show."
    assert sentences(empty) == [nothing]
    figure = gap_bars(compared(METHODS | {"types": (METHODS["types"][0], None)}))
    assert texts_of(figure, 0).count(" missing") == 1 and "types" not in bars_of(figure, 0)


def test_without_erm_gaps_are_drawn_and_not_judged():
    single = {name: METHODS[name] for name in ("all", "types")}
    assert all(
        bar.get_facecolor()[3] == 0 for bar in bars_of(gap_bars(compared(single)), 0).values()
    )
    (sentences_,) = sentences(single)
    assert sentences_.startswith("No ERM with the same model was run")
    gaps, judgement = tables()
    ((single,),) = comparisons(gaps, judgement[judgement["baseline"] != "all"], SHIPPED).values()
    (separate,) = (item for item in single.ran if item.baseline == "all")
    assert separate.verdict(1) == "no verdict", "it has no binding in common with ERM"


def test_what_no_method_beats_is_filled():
    points = np.array([[1, 1], [2, 0], [0, 2], [1, 0], [2, 0]], float)
    assert not_beaten(points).tolist() == [True, True, True, False, True]
    axes = gap_pareto(compared()).axes[0]
    lines = {line.get_label(): line for line in axes.lines if line.get_label() in METHODS}
    filled = {name for name, line in lines.items() if line.get_markerfacecolor() != "none"}
    assert filled == {"same", "types", "all"}
    assert lines["first"].get_xydata()[0] == pytest.approx([86, -54]), "the worse of both gaps"


def test_a_page_of_nothing_but_erm_has_no_sentence_about_methods():
    gaps, judgement = tables({"plain": METHODS["plain"]})
    frames = {"metrics": gaps.assign(metric_set="gaps"), "whac_a_mole": judgement}
    assert METRIC_SET.sentences(frames, SHIPPED) == {METRIC_SET.title: []}


def test_bars_have_no_interval_but_that_of_their_own_accuracy():
    """That of a loss is narrower: samples share what makes both accuracies high."""
    single = compared()
    bars, intervals = loss_bars(single, next(item for item in single.ran if item.is_reference))
    assert len(bars) == 4 and [*intervals] == ["in distribution"]


def test_the_sentences_say_the_effect_and_no_more_than_the_verdicts():
    assert sentences() == [
        "plain recognises shape in 93 % of in-distribution images (WHAC-95). It loses 40 points "
        "where hue misleads (95 %: 37.5 to 42.5), 30 points where texture misleads (95 %: 27.5 "
        "to 32.5) and 66 points where both mislead (95 %: 58.8 to 68.5).",
        "first, labels of hue alone: the loss to hue shrinks from 40 to 5 points, that to texture grows from 30 to 54.",
        "all narrows both gaps.",
        "types narrows the gap of hue alone.",
    ]
    honest = {name: METHODS[name] for name in ("plain", "same")}
    (not_wider,) = sentences(honest)[1:]
    assert "For no method" in not_wider
    lost, subset = sentences(samples=2)
    assert "It loses" not in lost and lost.endswith(
        "Measured, without an interval: -40 points where hue misleads, -30 points where texture "
        "misleads and -66 points where both mislead; fewer than 3 dataset samples cannot show an effect."
    )
    assert subset.startswith("Fewer than 3 dataset samples cannot show")
    several = METHODS | {f"also_{i}": METHODS["first"] for i in range(3)}
    sentences_ = sentences(several)
    assert sum("shrinks from" in text for text in sentences_) == 3
    assert "also_2 too: one gap shrinks, the other grows." in sentences_
    wide = {"plain": METHODS["plain"], "bad": (settings("jtt"), (0.9, -0.6, -0.6, -0.8))}
    assert sentences(wide)[1:] == ["bad widens both gaps."]
    gains = {"plain": (settings("erm"), (0.9, 0.02, -0.3, -0.3))}
    assert "It loses 30 points where texture misleads (95 %" in sentences(gains)[0]
    assert (
        "No further loss is seen; 95 % intervals reach 10 points where hue" in sentences(gains)[0]
    )
    row = {"plain": (settings("erm"), (0.9, -0.01, 0.0, 0.02))}
    assert "It loses" not in sentences(row)[0] and "No loss is seen" in sentences(row)[0]
    text, *_ = sentences(row, samples=2)
    assert "interval: -1 point where hue misleads, 0 points where texture misleads" in text
    row = {"plain": (settings("erm"), (0.9, -0.004, 0.0, 0.02))}
    assert "less than half a point where hue misleads, 0 points" in sentences(row, samples=2)[0]


def test_cue_preference_is_the_mean_over_runs_in_a_panel_per_method():
    """An accuracy that grows by 0.1 per epoch, and by 0.02 per sample; cues the other way."""
    runs = product([STUDY], ("plain", "other"), [BINDING], range(3), range(1, 5))
    rows = pd.DataFrame(runs, columns=["study", "baseline", "binding", "sample", "epoch"])
    learnt = 0.1 * rows["epoch"] + 0.02 * rows["sample"]
    cue_labels = {
        f"val_follows_cue_{position}": 0.9 - 0.1 * position - learnt for position in (1, 2)
    }
    figure = preference_curves(
        rows.assign(seed=0, val_accuracy=learnt, **cue_labels), STUDY, SHIPPED
    )
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["plain", "other"]
    axes = figure.axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert lines["target: shape"] == pytest.approx([0.12, 0.22, 0.32, 0.42])
    assert lines["cue 1: hue"] == pytest.approx([0.68, 0.58, 0.48, 0.38])
    assert lines["cue 2: texture"] == pytest.approx([0.58, 0.48, 0.38, 0.28])
    band = band_of(axes)
    assert band.max() - 0.42 == pytest.approx(0.02 / 3**0.5), "a standard error of 0, 0.02 and 0.04"


def test_the_contact_sheet_shows_every_cell_with_its_share_and_group(tmp_path):
    write_images(tmp_path, STUDY, BINDING.split("-"))
    figure = contact_sheet(tmp_path, STUDY, BINDING.split("-"), SHIPPED)
    # Of the group neither, there is no training image; it is shown all the same.
    shares = dict(zip(GAP_GROUPS, ("30.1 %", "0.801 %", "0.801 %", "never"), strict=True))
    frames = {}
    for axes, location in zip(figure.axes, product(range(3), repeat=3), strict=True):
        agree = location[0] == location[1], location[0] == location[2]
        assert (axes.images[0].get_array() == [20 + 80 * position for position in location]).all()
        assert axes.get_xlabel() == shares[agree]
        frames.setdefault(agree, set()).add(to_hex(axes.spines["left"].get_edgecolor()))
    assert len(set.union(*frames.values())) == sum(map(len, frames.values())) == 4


RUN_GAPS = {
    "plain": (settings(), (0.4, 0.3)),
    "first": (settings("group_dro", "cue-1"), (0.05, 0.55)),
    "all": (settings("group_dro", "cues"), (0.1, 0.1)),
}


def test_the_page_begins_with_what_the_tables_say_and_bars_tell_their_numbers(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("diagvib.report.figures.KINDS", (gap_figures, sheet_figures))
    provenance = expected(RUN_GAPS, STUDY, (BINDING, LATER))
    for run in provenance:
        _, (left, right) = RUN_GAPS[run["baseline"]]
        # Methods differ a little from sample to sample, unlike ERM.
        additions = 0.05 * (run["sample"] == 1 and run["baseline"] != "plain")
        write(tmp_path / "runs", run, losing(left + additions, right + additions))
    config = configured({name: output for name, (output, _) in RUN_GAPS.items()})
    tabulated(tmp_path, provenance, config)
    write_images(tmp_path / "images" / STUDY / BINDING / "0", STUDY, BINDING.split("-"))
    page = make_report(tmp_path, config)
    assert drawn_in(tmp_path) == {
        *(f"gaps/{STUDY}_{binding}" for binding in ("all", BINDING, LATER)),
        *(f"gaps/pareto_{STUDY}", f"sheets/{STUDY}_{BINDING}"),
    }
    head, _, section = " ".join(page.split()).partition('<section aria-labelledby="gaps"')
    assert '<p class="finding">plain recognises the target in' in head and "<section" not in head
    assert "first, labels of cue 1 alone: the loss to cue 1 shrinks" in section
    assert page.count("<title>first, labels ") == 2 * 3 * 3, "of every bar of three figures, twice"
    assert "DiagViB" not in page
    if find_browser() and os.name == "posix":
        with Browser(find_browser(), tmp_path / "profile") as browser:
            browser.open(tmp_path / "report.html", width=390)
            browser.run("document.querySelector('figure:has(.tip) .scroll').focus()")
            browser.press("ArrowRight")
            left = browser.run("document.querySelector('figure:has(.tip) .tip-text').textContent")
            assert left.startswith("plain, no group labels, where cue 1 misleads"), "by keyboard"
            browser.point_at("figure .narrow .tip path")
            output = browser.run("document.querySelector('figure:has(.tip) .tip-text').textContent")
            assert output.startswith(
                "plain, no group labels, where cue 1 misleads: gap -36.5 points"
            )
            assert "3 of 3" in output and browser.errors == []


def test_thin_lines_are_intervals_and_broken_ones_the_erm_of_the_same_model():
    other_values = {"far": (settings(model={"name": "resnet18"}), (0.9, -0.2, -0.2, -0.3))}
    single = compared(METHODS | other_values)
    segments = [
        line for item in gap_bars(single).axes[0].collections for line in item.get_segments()
    ]
    flat = {y: (remaining, right) for (remaining, y), (right, end) in segments if y == end}
    assert flat == {
        position: pytest.approx(
            (-100 * values.rows["cue_1_gap"].high, -100 * values.rows["cue_1_gap"].low)
        )
        for position, values in enumerate(single.methods)
    }
    upright = {y + 0.5: x for (x, y), (_, end) in segments if y != end}
    assert upright == pytest.approx({**dict.fromkeys(range(len(METHODS)), 40), len(METHODS): 20})


def test_a_broken_line_is_of_the_bindings_that_a_method_shares_with_erm():
    """`first` has one of two bindings; on the other, ERM loses 20 points more."""
    values, verdicts = tables()
    values = values[values["baseline"].isin(["plain", "first", "all"])]
    of_erm = values["baseline"] == "plain"
    values.loc[of_erm & values["metric"].isin(GAPS), "mean"] -= 0.1
    verdicts.loc[verdicts["baseline"] == "all", "reference_gap"] -= 0.1
    both = values.assign(binding=""), verdicts.assign(binding="")
    ((mean,),) = comparisons(*both, SHIPPED).values()
    assert [item.baseline for item in mean.methods] == ["plain", "first", "all"]
    figure = gap_bars(mean)
    broken = [
        {
            y + 0.5: round(x)
            for (x, y), (_, end) in (
                line for item in axes.collections for line in item.get_segments()
            )
            if y != end
        }
        for axes in figure.axes
    ]
    assert broken == [{0: 50, 1: 40, 2: 50}, {0: 40, 1: 30, 2: 40}, {0: 76, 2: 76}]


def test_a_bar_tells_how_many_samples_it_is_of():
    gaps, judgement = tables()
    gaps.loc[gaps["baseline"] == "all", "n"] = 2
    ((single,),) = comparisons(gaps, judgement, SHIPPED).values()
    assert bars_of(gap_bars(single), 0)["all"].get_gid().endswith("n = 2 of 3 dataset samples")


def test_each_binding_has_verdicts_of_its_own():
    gaps, judgement = tables()
    alternatives = judgement.assign(binding=LATER, verdict="cannot tell")
    pair = pd.concat([gaps, gaps.assign(binding=LATER)]), pd.concat([judgement, alternatives])
    ((subject, right),) = comparisons(*pair, SHIPPED).values()
    verdicts = [
        {item.baseline: item.verdict(2) for item in item.methods} for item in (subject, right)
    ]
    assert (verdicts[0]["first"], verdicts[1]["first"]) == ("worse", "cannot tell")


def test_the_method_that_widens_a_gap_most_is_named_first():
    additions = {"more": (settings("group_dro", "cue-1"), (0.86, -0.05, -0.64, -0.7))}
    sentences_ = [text for text in sentences(METHODS | additions) if "shrinks from" in text]
    assert [text.partition(",")[0] for text in sentences_] == ["more", "first"]


def test_the_legend_says_in_percent_what_was_trained(tmp_path):
    write_images(tmp_path, STUDY, BINDING.split("-"))
    (legend,) = contact_sheet(tmp_path, STUDY, BINDING.split("-"), SHIPPED).legends
    case = [text.get_text().rpartition(": ")[2].split()[0] for text in legend.get_texts()]
    assert sum(map(float, case)) == pytest.approx(100, abs=0.2) and float(case[0]) > 85
    # In a study judged otherwise, a group called `common` may be any.
    other_metrics = changed_study(STUDY, STUDY, metrics="accuracy")
    known_studies = KnownStudies(definitions=(other_metrics,))
    (legend,) = contact_sheet(tmp_path, STUDY, BINDING.split("-"), known_studies).legends
    assert legend.get_texts()[0].get_text().startswith("common: ")
