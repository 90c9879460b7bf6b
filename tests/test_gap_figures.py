"""Figures and sentences about two cues: what got worse is marked, and nothing is claimed that the
tables do not show."""

import json
import os
import re
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from matplotlib.colors import to_hex

from browser import Browser, find_browser
from diagvib.foundation.files import read_table, write_table
from diagvib.report.cell_sheets import cell_sheet
from diagvib.report.figures import draw_figures
from diagvib.report.gap_figures import gap_bars, gap_pareto, gap_title, not_beaten
from diagvib.report.gap_section import gap_sentences
from diagvib.report.judged import bindings_of, judged_methods
from diagvib.report.page import write_report
from diagvib.report.preference import preference_curves
from diagvib.report.sheets import scene_sample
from diagvib.report.style import HELD_OUT, TRAINED
from diagvib.results.gaps import MEASURES, gaps_table, whac_a_mole
from diagvib.results.known_studies import SHIPPED, KnownStudies
from diagvib.results.read_runs import run_folder
from diagvib.results.tables import tabulate
from diagvib.studies.binding import Binding
from diagvib.studies.needs import GAP_GROUPS
from diagvib.studies.study import load_study
from test_gaps import BINDING, SECOND, expected, losing, settings, write

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


def values(methods: dict = METHODS, bindings=(BINDING,), samples: int = 3) -> pd.DataFrame:
    """As from `gaps.run_gaps`: the stated numbers, plus what the dataset samples share; None: no
    runs."""
    rows = []
    for run in expected(methods, STUDY, bindings, samples):
        found = methods[run["baseline"]][1]
        apart = 0.01 * (run["sample"] - (samples - 1) / 2)
        # `same` is sometimes above, sometimes below ERM; the others differ from it by a little more
        # or less.
        own = (
            0.01 * (run["sample"] % 2)
            if run["baseline"] == "same"
            else 0.2 * apart * (run["baseline"] != "plain")
        )
        measured = [np.nan] * 5 if found is None else [*np.add(found, apart + own), 0.1]
        rows.append({**run, **dict(zip(MEASURES, measured, strict=True))})
    return pd.DataFrame(rows)


def tables(methods: dict = METHODS, **chosen) -> tuple[pd.DataFrame, pd.DataFrame]:
    found, baselines = (
        values(methods, **chosen),
        {name: made for name, (made, _) in methods.items()},
    )
    return gaps_table(found, baselines), whac_a_mole(found, baselines)


def bars_of(figure, panel: int) -> dict:
    return {bar.get_gid().split(".")[0]: bar for bar in figure.axes[panel].patches if bar.get_gid()}


def texts_of(figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_what_got_worse_is_marked_with_its_difference():
    figure = gap_bars(*tables(), STUDY, BINDING)
    hue, texture, joint = range(3)
    assert [to_hex(bars_of(figure, hue)[name].get_facecolor()) for name in ("first", "all")] == [
        TRAINED,
        TRAINED,
    ]
    worse = bars_of(figure, texture)["first"]
    assert to_hex(worse.get_facecolor()) == HELD_OUT and worse.get_width() == pytest.approx(54)
    assert [text for text in texts_of(figure, texture) if "(" in text] == ["-54  (-24)"]
    assert not any(
        "(" in text
        for text in [*texts_of(figure, joint), *texts_of(figure, hue)]
        if text[:1] == "-"
    )
    for panel in (hue, texture):
        assert bars_of(figure, panel)["same"].get_facecolor()[3] == 0, "hollow if undecided"
    assert "where hue misleads" in figure.axes[hue].get_title(loc="left")
    assert "fixing one shortcut makes another worse" in figure.legends[0].get_title().get_text()


def test_erms_gap_is_a_line_through_all_rows():
    figure = gap_bars(*tables(), STUDY, BINDING)
    for axes, gap in zip(figure.axes, (40, 30, 66), strict=True):
        lines = [one for one in axes.collections if str(one.get_gid()).startswith("reference.")]
        ends = [line.get_segments()[0] for line in lines]
        assert [end[:, 0].tolist() for end in ends] == [pytest.approx([gap, gap])] * len(METHODS)
        assert sorted(end[:, 1].min() for end in ends) == [-0.5, 0.5, 1.5, 2.5, 3.5]


def test_methods_stand_by_what_they_are_told_with_erm_first():
    methods = judged_methods(*tables(), STUDY, BINDING)
    assert [one.baseline for one in methods] == ["plain", "same", "types", "first", "all"]
    small = {"told nothing", "told which factors are cues", "told hue alone", "told both cues"}
    assert small <= set(texts_of(gap_bars(*tables(), STUDY, BINDING), 0))
    models = {
        "net": METHODS["plain"],
        "big": (settings(model={"name": "resnet18"}), (0.95, -0.2, -0.1, -0.4)),
        "other": METHODS["all"],
    }
    assert [one.baseline for one in judged_methods(*tables(models), STUDY, BINDING)] == [
        "net",
        "other",
        "big",
    ]
    assert "resnet18, told nothing" in texts_of(gap_bars(*tables(models), STUDY, BINDING), 0)


def test_the_title_claims_only_what_the_verdicts_say():
    honest = {name: METHODS[name] for name in ("plain", "same", "all")}
    methods = judged_methods(*tables(honest), STUDY, BINDING)
    assert "opens" not in gap_title(methods, STUDY, BINDING, SHIPPED)
    two = judged_methods(*tables(samples=2), STUDY, BINDING)
    assert not any(one.opens_another for one in two) and "opens" not in gap_title(
        two, STUDY, BINDING, SHIPPED
    )


def test_nothing_is_drawn_where_nothing_ran():
    empty = {name: (made, None) for name, (made, _) in METHODS.items()}
    assert (
        gap_bars(*tables(empty), STUDY, BINDING) is None
        and gap_pareto(*tables(empty), STUDY, BINDING) is None
    )
    some = METHODS | {"types": (METHODS["types"][0], None)}
    figure = gap_bars(*tables(some), STUDY, BINDING)
    assert texts_of(figure, 0).count(" missing") == 1 and "types" not in bars_of(figure, 0)
    assert not any(
        "types" in str(line.get_gid())
        for line in gap_pareto(*tables(some), STUDY, BINDING).axes[0].lines
    )


def test_without_erm_gaps_are_drawn_and_not_judged():
    alone = {name: METHODS[name] for name in ("all", "types")}
    figure = gap_bars(*tables(alone), STUDY, BINDING)
    assert all(bar.get_facecolor()[3] == 0 for bar in bars_of(figure, 0).values())
    assert not any(str(one.get_gid()).startswith("reference") for one in figure.axes[0].collections)
    assert [text.get_text() for text in figure.legends[0].texts] == ["not judged"]
    (said,) = gap_sentences(judged_methods(*tables(alone), STUDY, BINDING), STUDY, BINDING, SHIPPED)
    assert said.startswith("No ERM with the same model was run")


def test_several_bindings_have_a_mean():
    gaps, whac = tables(bindings=(BINDING, SECOND))
    assert bindings_of(gaps, STUDY) == ["", BINDING, SECOND]
    assert "where cue 1 misleads" in gap_bars(gaps, whac, STUDY, "").axes[0].get_title(loc="left")


def test_what_no_method_beats_is_filled():
    assert not_beaten(np.array([[1, 1], [2, 0], [0, 2], [1, 0], [2, 0]], float)).tolist() == [
        True,
        True,
        True,
        False,
        True,
    ]
    axes = gap_pareto(*tables(), STUDY, BINDING).axes[0]
    filled = {
        line.get_gid().removeprefix("point."): line.get_markerfacecolor() != "none"
        for line in axes.lines
        if line.get_gid()
    }
    assert filled == {"plain": False, "same": True, "types": True, "first": False, "all": True}
    assert set(METHODS) <= {text.get_text() for text in axes.texts}
    at = {
        line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_gid()
    }
    assert at["point.first"] == pytest.approx((86, -54)), "the worse of both gaps"


def test_the_sentences_say_the_effect():
    said = list(gap_sentences(judged_methods(*tables(), STUDY, BINDING), STUDY, BINDING, SHIPPED))
    assert said == [
        "plain recognises shape in 93 % of in-distribution images (WHAC-95). This changes by -40 points "
        "where hue misleads, by -30 where texture misleads and by -66 where both do.",
        "first, told hue alone: the gap of hue shrinks from -40 to -5 points, that of texture grows from -30 to -54.",
        "all narrows both gaps; types narrows the gap of hue alone.",
    ]


def test_the_sentences_say_where_nothing_got_worse_or_cannot_be_told():
    honest = {name: METHODS[name] for name in ("plain", "same", "all")}
    said = list(
        gap_sentences(judged_methods(*tables(honest), STUDY, BINDING), STUDY, BINDING, SHIPPED)
    )
    assert said[-1] == "For no method does the 95 % interval show a wider gap than ERM's."
    said = list(
        gap_sentences(judged_methods(*tables(samples=2), STUDY, BINDING), STUDY, BINDING, SHIPPED)
    )
    assert (
        len(said) == 2
        and said[1] == "Fewer than 3 dataset samples cannot show whether a method widens a gap."
    )
    many = METHODS | {f"also_{i}": METHODS["first"] for i in range(3)}
    many["late"] = settings("jtt"), (0.9, -0.35, -0.32, -0.6)
    said = list(
        gap_sentences(judged_methods(*tables(many), STUDY, BINDING), STUDY, BINDING, SHIPPED)
    )
    assert sum("shrinks from" in text for text in said) == 3
    assert "also_2 and late too: one gap shrinks, the other grows." in said
    wide = {"plain": METHODS["plain"], "bad": (settings("jtt"), (0.9, -0.6, -0.6, -0.8))}
    said = list(gap_sentences(judged_methods(*tables(wide), STUDY, ""), STUDY, "", SHIPPED))
    assert said == ["No run of WHAC-95 has finished yet, so there are no numbers to show."]
    said = list(
        gap_sentences(judged_methods(*tables(wide), STUDY, BINDING), STUDY, BINDING, SHIPPED)
    )
    assert said[1:] == ["bad widens both gaps."]


def history(
    study: str = STUDY, bindings=(BINDING,), cues: int = 2, epochs: int = 4
) -> pd.DataFrame:
    """For each run an accuracy that grows by 0.1 per epoch, and by 0.02 per sample; cues the other
    way."""
    rows = pd.DataFrame(
        product(("plain", "other"), bindings, range(3), range(1, epochs + 1)),
        columns=["baseline", "binding", "sample", "epoch"],
    )
    learnt = 0.1 * rows["epoch"] + 0.02 * rows["sample"]
    return rows.assign(
        study=study,
        val_accuracy=learnt,
        **{f"val_follows_cue_{cue}": 0.9 - 0.1 * cue - learnt for cue in range(1, cues + 1)},
    )


def test_cue_preference_is_the_mean_over_runs_in_a_panel_per_method():
    figure = preference_curves(history(), STUDY)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["plain", "other"]
    drawn = {
        line.get_label(): line.get_ydata().tolist()
        for line in figure.axes[0].lines
        if line.get_label()[0] != "_"
    }
    assert drawn == {
        "target: shape": pytest.approx([0.12, 0.22, 0.32, 0.42]),
        "cue 1: hue": pytest.approx([0.68, 0.58, 0.48, 0.38]),
        "cue 2: texture": pytest.approx([0.58, 0.48, 0.38, 0.28]),
    }
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() - 0.42 == pytest.approx(0.02 / 3**0.5), "a standard error of 0, 0.02 and 0.04"
    several = preference_curves(history(bindings=(BINDING, SECOND)), STUDY)
    assert {line.get_label() for line in several.axes[0].lines} >= {"target", "cue 1", "cue 2"}


def test_cue_preference_where_there_is_one_cue_and_where_there_is_nothing():
    assert "cue: hue" in {
        line.get_label()
        for line in preference_curves(history("zgo", ("shape-hue",), 1), "zgo").axes[0].lines
    }
    assert preference_curves(history().drop(columns="val_follows_cue_2"), STUDY) is None, (
        "not noted"
    )
    assert preference_curves(history().assign(val_follows_cue_2=np.nan), STUDY) is None, (
        "noted by no run"
    )
    one = history("zgo", ("shape-hue",), 1)
    assert preference_curves(one.assign(val_follows_cue_1=one["val_accuracy"]), "zgo") is None, (
        "cue and target are one"
    )


def write_images(folder, study: str = STUDY, binding: str = BINDING) -> dict:
    """Image files whose every pixel encodes its cell; returns the classes that are drawn."""
    factors, sample = binding.split("-"), scene_sample("digits", 0)
    chosen = {factor: sample.classes[factor] for factor in factors}
    for split, times in (("train", 2000), ("test", 1)):
        cells = load_study(study).cells(split)
        rows = []
        for row in cells.to_dict("records"):
            where = [row["target_class"], row["cue-1_class"], row["cue-2_class"]]
            names = {factor: chosen[factor][at] for factor, at in zip(factors, where, strict=True)}
            one = {
                "group": row["group"],
                **names,
                "image": np.tile(
                    np.array([20 + 80 * at for at in where], np.uint8), (8, 8, 1)
                ).tobytes(),
            }
            rows += [one] * (round(times * row["weight"]) or 1)
        write_table(
            folder / f"{split}.parquet",
            pa.Table.from_pylist(rows),
            {
                "study": study,
                "binding": binding,
                "sample": 0,
                "split": split,
                "image_shape": [8, 8, 3],
            },
        )
    return chosen


def test_the_contact_sheet_shows_every_cell_with_its_share_and_group(tmp_path):
    chosen = write_images(tmp_path)
    figure = cell_sheet(
        tmp_path / "train.parquet", tmp_path / "test.parquet", Binding(tuple(BINDING.split("-")))
    )
    assert len(figure.axes) == 27 and all(len(axes.images) == 1 for axes in figure.axes)
    assert [part.get_suptitle() for part in figure.subfigs] == [
        f"shape: {name}" for name in chosen["shape"]
    ]
    frames = {}
    for number, axes in enumerate(figure.axes):
        target, first, second = number // 9, number // 3 % 3, number % 3
        assert (
            axes.images[0].get_array()[0, 0] == [20 + 80 * at for at in (target, first, second)]
        ).all()
        group = GAP_GROUPS[first == target, second == target]
        frames.setdefault(group, set()).add(to_hex(axes.spines["left"].get_edgecolor()))
        share = float(axes.get_xlabel().removesuffix(" %"))
        weight = {
            "common": 0.9025 / 3,
            "no-cue-1": 0.0475 / 6,
            "no-cue-2": 0.0475 / 6,
            "neither": 0.0025 / 12,
        }[group]
        assert share == pytest.approx(100 * weight, rel=0.1, abs=0.05)
    assert len(set.union(*frames.values())) == 4 and all(
        len(colours) == 1 for colours in frames.values()
    )
    words = [text.get_text() for text in figure.legends[0].texts]
    assert [text.split(":")[0] for text in words] == [
        "both cues agree with the target",
        "hue misleads",
        "texture misleads",
        "both mislead",
    ]


def test_a_cell_that_is_never_trained_has_an_image_all_the_same(tmp_path):
    write_images(tmp_path)
    train = read_table(tmp_path / "train.parquet")
    keep = pc.equal(train["group"], "common")
    write_table(
        tmp_path / "train.parquet",
        train.filter(keep),
        {
            "study": STUDY,
            "binding": BINDING,
            "sample": 0,
            "split": "train",
            "image_shape": [8, 8, 3],
        },
    )
    figure = cell_sheet(
        tmp_path / "train.parquet", tmp_path / "test.parquet", Binding(tuple(BINDING.split("-")))
    )
    assert sum(axes.get_xlabel() == "never" for axes in figure.axes) == 24
    assert all(len(axes.images) == 1 for axes in figure.axes)


SAID = {
    "plain": (settings(), (0.4, 0.3)),
    "first": (settings("group_dro", "cue-1"), (0.05, 0.55)),
    "all": (settings("group_dro", "cues"), (0.1, 0.1)),
}


def page_of(root, runs: dict, bindings, noted: bool = True) -> str:
    """The page of runs with images of one binding. noted: whether they recorded which cues their
    predictions follow."""
    wanted = expected(runs, STUDY, bindings)
    for run in wanted if noted else ():
        made, (first, second) = runs[run["baseline"]]
        # Methods differ a little from sample to sample, unlike ERM.
        more = 0.05 * (run["sample"] == 1 and run["baseline"] != "plain")
        write(root / "runs", run, losing(first + more, second + more), made)
        path = run_folder(root / "runs", run) / "history.jsonl"
        rows = [
            json.loads(line)
            | {
                "val_follows_cue_1": 0.5,
                "val_follows_cue_2": 0.25 + 0.01 * run["sample"],
                "val_worst_group": 0.1,
            }
            for line in path.read_text().splitlines()
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    configured = {"sources": "embedded", "baselines": []}
    tabulate(root / "runs", root / "tables", wanted, configured)
    write_images(root / "images" / STUDY / BINDING / "0")
    draw_figures(root / "tables", root / "figures", root / "images", configured)
    write_report(root / "tables", root / "figures", root / "report.html", configured)
    return (root / "report.html").read_text()


def test_the_page_begins_with_what_the_tables_say(tmp_path):
    page = page_of(tmp_path, SAID, (BINDING, SECOND))
    names = {f"gaps/{STUDY}_{binding}" for binding in ("all", BINDING, SECOND)}
    names |= {f"gaps/pareto_{STUDY}", f"preference/{STUDY}", f"sheets/{STUDY}_{BINDING}"}
    assert {
        str(path.relative_to(tmp_path / "figures").with_suffix(""))
        for path in tmp_path.glob("figures/*/*.svg")
        if path.parent.name != "training"
    } == names
    first = page.index("<section")
    assert page[first:].startswith('<section aria-labelledby="gaps">')
    said = " ".join(page[first:].split())
    assert (
        "plain recognises the target in" in said
        and "first, told cue 1 alone: the gap of cue 1 shrinks" in said
    )
    assert page.count("<title>first, told ") == 2 * 3 + 3, "of every bar of three figures"
    assert re.findall(r'<option value="([^"]*)"', said)[:4] == [STUDY, "", BINDING, SECOND]
    shown = re.findall(r'<figure class="curves moles gap-(\w+)"[^>]*?( hidden)?>', page)
    assert shown == [
        ("bars", ""),
        ("bars", " hidden"),
        ("bars", " hidden"),
        ("pareto", ""),
        ("preference", ""),
        ("sheet", ""),
    ]
    assert (
        "two others, the cues, are correlated with it" in " ".join(page.split())
        and "DiagViB" not in page
    )


def test_epochs_keep_what_was_noted_about_validation_images(tmp_path):
    page_of(tmp_path, {"plain": SAID["plain"]}, (BINDING,))
    epochs = read_table(tmp_path / "tables/history.parquet").to_pandas()
    assert set(epochs["val_follows_cue_1"]) == {0.5} and epochs["val_worst_group"].notna().all()
    assert epochs["val_worst_group_cue_2"].isna().all(), "noted by no run"


def test_a_page_without_runs_says_so_and_shows_no_empty_figures(tmp_path):
    page = page_of(tmp_path, SAID, (BINDING,), noted=False)
    assert (
        "No run of WHAC-95 has finished yet" in page
        and "gap-study" not in page.split("<script>")[0]
    )
    assert (
        "<select" not in page and "gap-bars" not in page.split("</style>")[1].split("<script>")[0]
    )


@pytest.mark.skipif(find_browser() is None or os.name != "posix", reason="no Chromium here")
def test_the_page_shows_the_binding_that_is_chosen_and_what_is_pointed_at(tmp_path):
    page_of(tmp_path, SAID, (BINDING, SECOND))
    with Browser(find_browser(), tmp_path / "profile") as browser:
        browser.open(tmp_path / "report.html", width=390)
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        browser.run(
            "(() => { const chosen = document.getElementById('gap-binding'); "
            f"chosen.value = '{SECOND}'; chosen.dispatchEvent(new Event('change')); }})()"
        )
        assert (
            browser.run(
                "[...document.querySelectorAll('figure.gap-bars:not([hidden])')].map("
                "figure => figure.dataset.binding).join()"
            )
            == SECOND
        )
        assert browser.run("document.querySelectorAll('figure.moles:not([hidden])').length") == 4
        browser.point_at("figure.gap-bars:not([hidden]) .tip path")
        said = browser.run(
            "document.querySelector('figure.gap-bars:not([hidden]) .told').textContent"
        )
        assert (
            said.startswith("plain, told nothing, where hue misleads: -36.5 points")
            and "3 of 3" in said
        )
        assert browser.errors == []


def test_a_cue_that_points_to_no_single_class_has_no_curve(tmp_path):
    assert (
        preference_curves(
            history("m2m-easy", ("shape-hue",), 1).assign(val_follows_cue_1=0.0), "m2m-easy"
        )
        is None
    )
    assert preference_curves(history("o2o-easy", ("shape-hue",), 1), "o2o-easy") is not None
    (tmp_path / "mine.yaml").write_text(
        "title: Mine\nstudies:\n  mine:\n    title: Mine\n    meaning: m\n    metrics: accuracy\n"
        "    roles: {target: 2, cue-1: 3, cue-2: 2}\n    rows:\n"
        "      - splits: [train, val, test]\n        group: seen\n"
        "        cells: [[0, 0, 0], [0, 1, 0], [0, 2, 0], [1, 0, 1], [1, 1, 1], [1, 2, 1]]\n"
    )
    found = KnownStudies((str(tmp_path / "mine.yaml"),))
    figure = preference_curves(history("mine"), "mine", found)
    drawn = {line.get_label(): line for line in figure.axes[0].lines if line.get_label()[0] != "_"}
    assert list(drawn) == ["target: shape", "cue 2: texture"]
    with_both = {
        line.get_label(): line for line in preference_curves(history(), STUDY).axes[0].lines
    }
    assert all(drawn[label].get_color() == with_both[label].get_color() for label in drawn)
