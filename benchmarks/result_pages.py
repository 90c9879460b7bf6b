"""Write the tables of the result pages: our numbers beside the paper's, and the paper's claims.

    python benchmarks/result_pages.py

Reads docs/results/*/runs.csv and config/papers/diagvib6.csv, writes docs/results/*/claims.csv and
cue_strength.csv, figures, and the text between `<!-- table NAME -->` and `<!-- end -->` on
docs/results_*.md.
"""

import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import typer
from claims import read_claims
from result_file import REPOSITORY

from diagvib.foundation.files import read_json, write_text
from diagvib.foundation.seeding import named_generator
from diagvib.report.curves import cue_strength_figures
from diagvib.report.style import MUTED, add_legend, by_baseline, new_panels
from diagvib.results.known_studies import SHIPPED
from diagvib.results.metric_sets.cue_strength import cue_strength, half_way_tables
from diagvib.results.uncertainty import half_width, sample_interval

Row = list[str]
# Groups of images with two cues, of shape or texture by position and hue.
GROUPS = {
    "common": "both agree",
    "no-cue-1": "position misleads",
    "no-cue-2": "hue misleads",
    "neither": "both mislead",
}
# Methods of the comparison -> the simple control that knows as much.
RETRAINING = ("afr", "self", "dpe", "cb_llr")
CONTROLS = dict.fromkeys(RETRAINING, "llr")
CONTROLS |= dict.fromkeys(("group_dro", "di", "subg", "dfr", "dpe_cues"), "rwg")
TOLD = {"none": "nothing", "environments": "environments", "cues": "all cues"}
RULES = {
    "val_accuracy": "all validation images",
    # Both environments have equally many.
    "val_environment_accuracy": "all validation images",
    "val_worst_group": "their worst group",
    "oracle": "all test images",
}
# In the order of the paper's FAAvg in ZGO.
FACTORS = ("position", "hue", "lightness", "shape", "scale", "texture")
STUDIES = ("zso", "zgo", "cgo-1", "cgo-2", "cgo-3", "chgo", "fgo-5", "fgo-10", "fgo-20")
FROZEN = {
    "lite0": "ImageNet weights",
    "lite0_untrained": "random weights",
    "small_cnn": "small_cnn, end to end",
}
# Folders with a map of shortcuts.
MAPS = ("laptop", "frozen", "cue_strength")
# The paper's network that ours stand beside, and its number of dataset samples.
PAPER, PAPER_SAMPLES = "resnet18", 5
CONTRASTS = [("zgo", "zso"), *((study, "zgo") for study in STUDIES[2:])]


def accuracies(folder: str, group: str = "tested") -> pd.DataFrame:
    """FAAvg by (study, target), a column per dataset sample. group: the cells where the cue
    misleads (in ZSO, which has no cue, all) or, as `id`, those trained on."""
    own = runs(folder)
    values = own["id_accuracy"] if group == "id" else tested(own)
    return values.groupby([own["study"], own["target"], own["sample"]]).mean().unstack("sample")


def paper(metric: str = "faavg", baseline: str = PAPER) -> pd.DataFrame:
    """The paper's mean and standard error by (study, target), as fractions."""
    table = pd.read_csv(REPOSITORY / "config/papers/diagvib6.csv")
    table = table[(table["baseline"] == baseline) & (table["metric"] == metric)]
    spread = np.where(table["spread_kind"] == "std", PAPER_SAMPLES**0.5, 1)
    return pd.DataFrame(
        {"mean": table["mean_percent"] / 100, "stderr": table["spread_percent"] / spread / 100}
    ).set_index([table["study"].str.lower(), table["factor"].rename("target")])


def claims(folder: str) -> pd.DataFrame:
    """The paper's claims, each a difference of two of its numbers, beside ours.

    difference, low, high: mean and 95 % interval of ours, paired by dataset sample. direction:
    `same` if that interval excludes 0 on the paper's side, `opposite` on the other, else `open`.
    size: `differs` if ours minus the paper's is outside its own 95 % interval (Welch's t, with the
    paper's standard errors as if its two numbers were independent, which is too wide), else `open`.
    """
    ours, theirs, chgo = accuracies(folder), paper(), paper("improvement_over_zgo")
    # Position is at 100 % in every study here and in the paper.
    pairs = [(*pair, target, target) for pair in CONTRASTS for target in FACTORS[1:]]
    pairs += [("zgo", "zgo", *two) for two in pairwise(FACTORS)]
    rows = []
    for study, reference, target, other in pairs:
        if study not in ours.index:
            continue
        both = [ours.loc[key].to_numpy() for key in ((study, target), (reference, other))]
        each, (low, high) = both[0] - both[1], sample_interval(*both)
        if study == "chgo":
            their, error = chgo.loc[(study, target)]
        else:
            two = theirs.loc[[(study, target), (reference, other)]]
            their, error = two["mean"].iloc[0] - two["mean"].iloc[1], np.hypot(*two["stderr"])
        direction = np.sign(their) * ((low > 0) - (high < 0))
        row = {"study": study, "reference": reference, "target": target, "reference_target": other}
        row |= {"difference": each.mean(), "low": low, "high": high, "n": len(each)}
        row |= {"paper": their, "paper_stderr": error}
        row["direction"] = {1: "same", -1: "opposite"}.get(direction, "open")
        row["size"] = "differs" if abs(each.mean() - their) > uncertainty(each, error) else "open"
        rows.append(row)
    return pd.DataFrame(rows)


def uncertainty(each: np.ndarray, error: float) -> float:
    """Half of the 95 % interval of our mean minus the paper's number; NaN for a single sample.

    each: our values by dataset sample; error: the paper's standard error. A percent is added, since
    each of the two numbers that the paper's is made of is rounded to one.
    """
    n = len(each)
    ours, theirs = np.var(each, ddof=1) / n if n > 1 else np.nan, error**2
    freedom = (ours + theirs) ** 2 / (ours**2 / (n - 1) + theirs**2 / (PAPER_SAMPLES - 1))
    return half_width(freedom) * (ours + theirs) ** 0.5 + 0.01


def accuracy_table(folder: str) -> list[Row]:
    """FAAvg, ours and the paper's, each with its standard error over the dataset samples."""
    ours, theirs = accuracies(folder), paper()
    rows = [["study", *FACTORS]]
    for study in studies(ours):
        row = [study.upper()]
        for target in FACTORS:
            own = ours.loc[(study, target)]
            text = plus_minus(own.mean(), own.std(ddof=1) / len(own) ** 0.5)
            if (study, target) in theirs.index:
                text += f" / {plus_minus(*theirs.loc[(study, target)])}"
            row.append(text)
        rows.append(row)
    return rows


def in_distribution_table(folder: str) -> list[Row]:
    """Accuracy on test images like those trained on, and its rank correlation with the paper's
    FAAvg beside that of our FAAvg."""
    ours, same, theirs = accuracies(folder), accuracies(folder, "id"), paper()["mean"]
    rows = [["study", *FACTORS, "correlation with the paper", "of FAAvg"]]
    for study in studies(ours):
        means = [own.loc[study].mean(axis=1).reindex(FACTORS) for own in (same, ours)]
        order = theirs.get(study, pd.Series(dtype=float)).reindex(FACTORS)
        found = [each.corr(order, "spearman") for each in means]
        row = [study.upper(), *(f"{100 * value:.0f}" for value in means[0])]
        rows.append(row + ["" if value != value else f"{value:.2f}" for value in found])
    return rows


def claim_table(folder: str) -> list[Row]:
    """The claims on studies: our difference with its interval, and the paper's."""
    own = claims(folder).query("study != reference")
    rows = [["difference of FAAvg", *FACTORS[1:]]]
    for (study, reference), of_study in own.groupby(["study", "reference"], sort=False):
        rows.append([f"{study} - {reference}".upper(), *map(claim_text, records(of_study))])
    return rows


def neighbour_table(folder: str) -> list[Row]:
    """The claims on neighbouring factors in ZGO."""
    own = records(claims(folder).query("study == reference"))
    rows = [[f"{row.target} - {row.reference_target}", claim_text(row)] for row in own]
    return [["difference of FAAvg in ZGO", "ours / paper"], *rows]


def claim_text(row) -> str:
    """`-26 ± 9 / -26`, or `2 (-7 to 11) / 6` near an edge; a cell whose interval lies on the other
    side of 0 or that differs in size from the paper's is marked."""
    half, ours = (row.high - row.low) / 2, f"{100 * row.difference:z.0f}"
    if abs(row.high - half - row.difference) < 0.0005:
        ours += f" ± {100 * half:.0f}"
    elif half == half:
        ours += f" ({100 * row.low:z.0f} to {100 * row.high:z.0f})"
    sure = {"same": f"**{ours}**", "opposite": f"**{ours}** (opposite)"}.get(row.direction, ours)
    return f"{sure} / {100 * row.paper:z.0f}" + (" ≠" if row.size == "differs" else "")


def full_size_table() -> list[Row]:
    """Runs with all images beside those with a tenth (dataset sample 0), and the paper's averages
    over five cues and five samples, of which it prints no single one."""
    keys = ["study", "binding", "sample"]
    tenth, whole = (runs(name).set_index(keys) for name in ("laptop", "laptop_full_size"))
    averages, lowest = paper(), paper("famin")
    rows = [["study, target-cue", "a tenth", "all images", "paper, FAAvg", "paper, FAMin"]]
    for key in (key for study in STUDIES for key in whole.index if key[0] == study):
        row = [f"{key[0].upper()}, {key[1]}"]
        for its in (tenth.loc[key], whole.loc[key]):
            tested = f"{100 * its['id_accuracy']:.1f} in distribution"
            misled = f"**{100 * its['ood_accuracy']:.1f}**; " if its["ood_n"] > 0 else ""
            row.append(misled + tested)
        cell = (key[0], whole.loc[key, "target"])
        row += [plus_minus(*of.loc[cell]) if cell in of.index else "" for of in (averages, lowest)]
        rows.append(row)
    return rows


def learning_table(
    folder: str, target: str, model: str | None = None, timed: bool = True
) -> list[Row]:
    """What each model learns of a target in ZSO: its accuracy, the paper's with its standard error,
    and the accuracy on validation images after the first epochs of the last phase. model: the
    paper's, if all rows are ways to train it."""
    times = read(f"{folder}/run_times").query("binding == @target").set_index("baseline")
    history = read(f"{folder}/history").dropna(subset="val_accuracy")
    history = history.query("target == @target").groupby("baseline")
    rows = [["model", "accuracy", "paper", "after epochs 1 to 8", "epochs"]]
    rows[0] += ["images/s", "minutes"] if timed else []
    for run in records(runs(folder).query("target == @target")):
        theirs, key = paper(baseline=model or run.baseline), (run.study, run.target)
        epochs = history.get_group(run.baseline)["val_accuracy"]
        row = [run.baseline, percent(run.id_accuracy)]
        row += [plus_minus(*theirs.loc[key]) if key in theirs.index else ""]
        row += [" ".join(f"{100 * value:.0f}" for value in epochs.head(8)), str(len(epochs))]
        if timed:
            time = times.loc[run.baseline]
            row += [f"{time['images_per_second']:.0f}", f"{time['seconds_train'] / 60:.0f}"]
        rows.append(row)
    return rows


def frozen_accuracies() -> pd.DataFrame:
    """Accuracy of the networks of FROZEN by (study, target), and its mean over the targets, a column
    per (network, dataset sample): without a shortcut in ZSO, elsewhere where it misleads, averaged
    over five cues."""
    own = runs("frozen")
    by = [own[name] for name in ("study", "target", "baseline", "sample")]
    means = tested(own).groupby(by).mean().unstack(["baseline", "sample"])
    all_targets = means.groupby("study").mean()
    all_targets.index = [(study, "mean") for study in all_targets.index]
    return pd.concat([means, all_targets])


def frozen_table() -> list[Row]:
    """`frozen_accuracies`, averaged over the dataset samples, of networks that ran in a study; and
    those of the paper's network with ImageNet weights."""
    means = frozen_accuracies().T.groupby(level="baseline", sort=False).mean().T
    rows = [["study", "network", *FACTORS, "mean"]]
    for study in studies(means):
        for name in FROZEN:
            own = means.get(name, pd.Series(dtype=float)).reindex(means.index).loc[study]
            if own.notna().all():
                rows.append([study.upper(), FROZEN[name], *map(percent, own[rows[0][2:]])])
        theirs = paper(baseline="resnet50_in")["mean"].get(study)
        if theirs is not None:
            each = [f"{100 * theirs[target]:.0f}" for target in FACTORS]
            rows.append([study.upper(), "paper, resnet50_in", *each, percent(theirs.mean())])
    return rows


def frozen_sizes_table() -> list[Row]:
    """ZGO of Lite0 on images of 128 and of 224 pixels, the same drawings of one dataset sample."""
    small = runs("frozen").query("baseline == 'lite0' and study == 'zgo' and sample == 0")
    rows = [["pixels", *FACTORS, "mean"]]
    for size, own in (("128", small), ("224", runs("frozen_224"))):
        means = tested(own).groupby(own["target"]).mean()
        rows.append([size, *map(percent, means[[*FACTORS]]), percent(means.mean())])
    return rows


def frozen_gains(name: str, reference: str) -> list[Row]:
    """What a network has more than another by study and target, paired by dataset sample; studies
    that both ran."""
    means = frozen_accuracies()
    rows = [["study", *FACTORS, "mean"]]
    for study in studies(means):
        own = [means.loc[study, target].unstack("baseline") for target in rows[0][1:]]
        if own[0].reindex(columns=[name, reference]).notna().all(axis=None):
            rows.append([study.upper(), *(gain(one, name, reference) for one in own)])
    return rows


def recovered_table() -> list[Row]:
    """The cost of the shortcut, mean over the targets, and what FGO-20 wins back, with intervals over
    the dataset samples; networks that ran in all three studies."""
    means = frozen_accuracies().xs("mean", level=1)
    rows = [["network", "ZSO - ZGO", "FGO-20 - ZGO", "share won back, %"]]
    for name, title in FROZEN.items():
        own = means.get(name, pd.DataFrame()).T.reindex(columns=["zso", "zgo", "fgo-20"])
        if len(own) and own.notna().all(axis=None):
            share = (own["fgo-20"] - own["zgo"]) / (own["zso"] - own["zgo"])
            low, high = sample_interval(share)
            text = f"{100 * share.mean():.0f} ({100 * low:.0f} to {100 * high:.0f})"
            rows.append([title, gain(own, "zso", "zgo"), gain(own, "fgo-20", "zgo"), text])
    return rows


def frozen_methods_table() -> list[Row]:
    """Methods on frozen features: means and 95 % intervals over the dataset samples, and the gain
    over ERM, paired by sample."""
    metrics = read("frozen_environments/metrics")
    heads = ["in distribution", "test environment", "95 % interval", "more than ERM"]
    rows = [["study", "method", *heads]]
    for study in metrics["study"].dropna().unique():
        accuracy = by_sample("frozen_environments", "ood_accuracy", study)
        for name in sorted(accuracy, key=lambda name: name != "lite0_erm_env"):
            own = metrics[(metrics["baseline"] == name) & (metrics["study"] == study)]
            own = own.set_index("metric")
            low, high = own.loc["accuracy", ["low", "high"]]
            row = [study, name.removeprefix("lite0_").removesuffix("_env")]
            row += [percent(own["mean"][metric]) for metric in ("id_accuracy", "accuracy")]
            row += [f"{percent(low)} to {percent(high)}", gain(accuracy, name, "lite0_erm_env")]
            rows.append(row)
    return rows


def frozen_cues_table() -> list[Row]:
    """Methods on frozen features with two shortcuts: accuracy where the cues agree with the target,
    where one misleads and where both do, and the gain over ERM there, paired by sample."""
    both = by_sample("frozen_whac_a_mole", "neither_accuracy", "whac-95")
    rows = [["method", *GROUPS.values(), "more than ERM"]]
    for name, own in runs("frozen_whac_a_mole").groupby("baseline", sort=False):
        cells = [percent(own[f"{group}_accuracy"].mean()) for group in GROUPS]
        rows.append([name.removeprefix("lite0_"), *cells, gain(both, name, "lite0_erm")])
    return rows


def groups_table(folder: str) -> list[Row]:
    """Every method of the comparison on two cues: accuracy by group of images, with each target."""
    own = compared(folder).query("study == 'whac-95'")
    heads = [f"{target}: {title}" for target in own["target"].unique() for title in GROUPS.values()]
    rows = [["told", "method", *heads]]
    for told, method in in_order(folder):
        each = own[own["method"] == method].groupby("target", sort=False)
        means = each[[f"{group}_accuracy" for group in GROUPS]].mean()
        rows.append([told, method, *map(percent, means.to_numpy().flat)])
    return rows


def gains_table(folder: str) -> list[Row]:
    """What each method has more than ERM where the cues mislead, paired by dataset sample; of ERM
    itself the accuracy."""
    settings = misled(folder)
    rows = [["told", "method", *settings]]
    rows.append(["", "erm, accuracy", *(percent(own["erm"].mean()) for own in settings.values())])
    for told, method in in_order(folder):
        if method != "erm":
            cells = (gain(own, method, "erm") if method in own else "" for own in settings.values())
            rows.append([told, method, *cells])
    return rows


def controls_table(folder: str) -> list[Row]:
    """What a method has more than its control where the cues mislead, paired by dataset sample."""
    settings = misled(folder)
    rows = [["method", "control", *settings]]
    for _, method in in_order(folder):
        control = CONTROLS.get(method)
        if control in next(iter(settings.values())):
            cells = (
                gain(own, method, control) if method in own else "" for own in settings.values()
            )
            rows.append([method, control, *cells])
    return rows


def gains_figure(folder: str) -> None:
    """The gains over ERM, beside the runs: a panel per study and target with counter-examples."""
    settings = {name: own for name, own in misled(folder).items() if not name.startswith("ZGO")}
    listed = [(told, method) for told, method in in_order(folder)[::-1] if method != "erm"]
    drawing, panels = new_panels(len(settings), 5, (2.1, 4.2), (0.8, 0.5))
    for axes, (name, own) in zip(panels, settings.items(), strict=True):
        for told, (colour, marker) in by_baseline(TOLD.values()).items():
            rows = [at for at, (its, _) in enumerate(listed) if its == told]
            pairs = [(own[listed[at][1]], own["erm"]) for at in rows]
            mean = np.array([(one - erm).mean() for one, erm in pairs])
            ends = np.array([sample_interval(*pair) for pair in pairs]).reshape(-1, 2).T
            look = {"color": colour, "marker": marker, "linestyle": "none", "elinewidth": 1.2}
            if rows:
                axes.errorbar(
                    100 * mean, rows, xerr=100 * abs(ends - mean), label=f"told {told}", **look
                )
        axes.axvline(0, color=MUTED, linewidth=0.9)
        axes.set_title(name)
        axes.set_yticks(range(len(listed)), [method for _, method in listed])
    drawing.supxlabel("more accurate than ERM where the cues mislead, points", fontsize=9)
    add_legend(drawing)
    path = REPOSITORY / "docs/results" / folder / "gains.png"
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def misled(folder: str) -> dict[str, pd.DataFrame]:
    """Study and target -> accuracy where every cue misleads, by dataset sample, a column per method."""
    own = compared(folder)
    own["misled"] = own["ood_accuracy"]
    if "neither_accuracy" in own:
        own["misled"] = own["neither_accuracy"].fillna(own["ood_accuracy"])
        # Where only the first of two cues goes with the target, it misleads in two groups of images.
        one = own[["no-cue-1_n", "neither_n"]].rename(columns=lambda name: name.removesuffix("_n"))
        each = own[["no-cue-1_accuracy", "neither_accuracy"]].set_axis(one.columns, axis="columns")
        first = own["study"] == "cue-1-95"
        own.loc[first, "misled"] = (each * one).sum(axis="columns") / one.sum(axis="columns")
    return {
        f"{study.upper()}, {target}": group.pivot(index="sample", columns="method", values="misled")
        for (study, target), group in own.groupby(["study", "target"], sort=False)
    }


def in_order(folder: str) -> list[tuple[str, str]]:
    """What a method is told of the cues, and its name; best first where all cues mislead."""
    own = compared(folder)
    best = next(iter(misled(folder).values())).mean().sort_values(ascending=False).index
    told = own.drop_duplicates("method").set_index("method")["told"]
    return [(name, method) for name in TOLD.values() for method in best if told[method] == name]


def compared(folder: str) -> pd.DataFrame:
    """runs.csv with the method of a baseline and what it is told of the cues."""
    told = read(f"{folder}/metrics").drop_duplicates("baseline").set_index("baseline")
    own = runs(folder)
    told = own["baseline"].map(told["supervision"]).map(TOLD)
    return own.assign(told=told, method=methods(own["baseline"]))


def rules_table(folder: str) -> list[Row]:
    """Accuracy where all cues mislead, of the trial and epoch that a rule chooses."""
    trials = read(f"{folder}/tuning")
    rules = [rule for rule in RULES if rule in trials["rule"].to_numpy()]
    best = trials.loc[trials.groupby(["baseline", "rule"])["score"].idxmax()]
    misled = "neither_accuracy" if "neither_accuracy" in best else "ood_accuracy"
    chosen = best.pivot(index="baseline", columns="rule", values=misled)[rules]
    rows = [["method", *map(RULES.get, rules)]]
    chosen.index = methods(chosen.index)
    for method, each in chosen.sort_values(rules[0], ascending=False).iterrows():
        rows.append([str(method), *map(percent, each)])
    return rows


def methods(baselines: pd.Series | pd.Index) -> pd.Series | pd.Index:
    return baselines.str.replace("^tuned_(lite0_)?(env_)?", "", regex=True)


def by_sample(folder: str, column: str, study: str) -> pd.DataFrame:
    """A column of runs.csv by dataset sample, a column per baseline."""
    return (
        runs(folder)
        .query("study == @study")
        .pivot(index="sample", columns="baseline", values=column)
    )


def gain(values: pd.DataFrame, name: str, reference: str) -> str:
    """What a baseline has more than another, with its interval; blank for that one itself."""
    more = values[name] - values[reference]
    low, high = sample_interval(values[name], values[reference])
    text = f"{more.mean() * 100:+z.1f} ({low * 100:+z.1f} to {high * 100:+z.1f})"
    return text if more.any() else ""


def claim_commands() -> list[Row]:
    """What each command of claims.yaml takes."""
    rows = [["", "command", "minutes", "memory, GiB", "disk, MB", "committed tables"]]
    for number, made in enumerate(read_claims(), 1):
        costs = [str(made[key]) for key in ("minutes", "gib", "mb")]
        committed = f"`{made['committed']}`" if "committed" in made else ""
        rows.append([str(number), f"`{made['command']}`", *costs, committed])
    return rows


def claim_list() -> list[Row]:
    """Every claim of claims.yaml, its number bold, and how far a new run may be off."""
    rows = [["claim", "on", "command", "a new run, ±"]]
    for number, made in enumerate(read_claims(), 1):
        for claim in made["claims"]:
            text = re.sub("{(.*)}", r"**\1**", claim["says"]).replace("|", "\\|")
            page = os.path.relpath(claim["page"], "docs")
            # The site leaves the paper out: its citations are for a journal's tools.
            link = "paper.md" if page == "paper.md" else f"[{Path(page).name}]({page})"
            rows.append([text, link, str(number), str(claim.get("within", ""))])
    return rows


def strength(folder: str) -> pd.DataFrame:
    """The map of shortcuts of all its baselines."""
    return cue_strength(runs(folder).fillna({"cue": ""}), SHIPPED)


def half_way_table(folder: str, baseline: str) -> list[Row]:
    """Half-way strengths with intervals, of one baseline at one spread."""
    frame = strength(folder).query("baseline == @baseline")
    (made,) = half_way_tables(frame, FACTORS)
    return [row[2:] for row in (made.heads, *made.rows)]


def falls(folder: str, baseline: str) -> str:
    """Whether accuracy rises with the share of counter-examples."""
    shares = strength(folder).drop_duplicates("study").set_index("study")["counter_examples"]
    own = runs(folder).query("baseline == @baseline and study in @shares.index")
    own = own.assign(share=own["study"].map(shares))
    steps = []
    for _, curve in own.groupby("binding"):
        values = curve.pivot(index="share", columns="sample", values="ood_accuracy").to_numpy()
        steps += pairwise(values)
    changes = np.array([(after - before).mean() for before, after in steps])
    certain = sum(sample_interval(after, before)[1] < 0 for before, after in steps)
    return (
        f"In {(changes < -1e-9).sum()} of {len(steps)} steps from one share to the next, the mean accuracy falls, by at "
        f"most {-100 * changes.min():.1f}\npoints; the 95 % interval of the change, paired by sample, is below 0 in "
        f"{certain or 'none'} of them."
    )


def strength_figure(folder: str) -> None:
    """The curves, beside the runs."""
    material = SimpleNamespace(frames={"cue_strength": strength(folder)}, known=SHIPPED)
    drawing = next(cue_strength_figures(material)).draw()
    path = REPOSITORY / "docs/results" / folder / "cue_strength.png"
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def watermark_result() -> dict:
    """The newest result of `benchmarks/watermark.py`."""
    return read_json(max((REPOSITORY / "benchmarks/results").glob("watermark-cpu-*.json")))


def text_table() -> list[Row]:
    """The effect of each text on P(carton), and how much larger that of the published one is, paired
    by photo."""
    result = watermark_result()
    rises = [np.log([photo["factor"] for photo in its["photos"]]) for its in result["rows"]]
    shape = (result["resamples"], len(rises[0]))
    drawn = named_generator("watermark").integers(shape[1], size=shape)
    rows = [["text", "", "P(carton) times", "95 % interval", "rises on", "rank"]]
    rows[0] += ["median rank", "mean P(carton)", "published text, times this"]
    for its, rise in zip(result["rows"], rises, strict=True):
        more = rises[0] - rise
        low, high = np.exp(np.quantile(more[drawn].mean(1), (0.025, 0.975)))
        before, after = its["p_carton"], its["p_carton"] + its["delta_p_carton"]
        row = [f"`{its['text']}`", its["kind"], f"{its['factor']:.1f}"]
        row += [f"{its['low']:.1f} to {its['high']:.1f}", f"{(rise > 0).sum()} of {len(rise)}"]
        row += [str(its["rank"]), f"{its['median_rank']:g}"]
        row += [f"{100 * before:.2f} % to {100 * after:.2f} %"]
        times = f"{np.exp(more.mean()):.1f} ({low:.1f} to {high:.1f})"
        rows.append([*row, times if more.any() else ""])
    return rows


def photo_table() -> list[Row]:
    """The effect of the published watermark on each photo."""
    result = watermark_result()
    found = {photo["photo"]: photo for photo in result["rows"][0]["photos"]}
    rows = [["photo", "licence", "author", "P(carton)", "times", "rank"]]
    for folder, photos in result["licences"].items():
        for name, about in photos.items():
            own = found[name]
            numbers = [f"{100 * own['p_carton']:.4f} %", f"{own['factor']:.1f}", str(own["rank"])]
            rows.append([f"`{folder}/{name}`", *about, *numbers])
    return rows


def watermark_conditions() -> str:
    its = watermark_result()
    return (
        f"{its['date']}, {its['machine']['cpu']}, torch {its['versions']['torch']}. Weights: sha256 "
        f"`{its['weights_sha256'][:16]}`. Font: {its['font']}. {its['resamples']:,} resamples of the photos."
    )


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(REPOSITORY / f"docs/results/{name}.csv")


def runs(folder: str) -> pd.DataFrame:
    return read(f"{folder}/runs")


def tested(runs: pd.DataFrame) -> pd.Series:
    """Accuracy where the cue misleads or, in ZSO, which has no cue, on all images."""
    return runs["ood_accuracy"].fillna(runs["id_accuracy"])


def studies(frame: pd.DataFrame) -> list[str]:
    return [name for name in STUDIES if name in frame.index]


def records(frame: pd.DataFrame) -> list:
    return list(frame.itertuples(index=False))


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def plus_minus(mean: float, error: float) -> str:
    """In whole percent; no spread is printed where none was seen."""
    return f"{100 * mean:.0f} ± {100 * error:.0f}" if 100 * error >= 0.5 else f"{100 * mean:.0f}"


# Page -> name of a table -> what makes its heads and rows, or a text.
PAGES: dict[str, dict[str, Callable[[], list[Row] | str]]] = {
    "results_small_cnn": {
        "accuracy": lambda: accuracy_table("laptop"),
        "claims": lambda: claim_table("laptop"),
        "neighbours": lambda: neighbour_table("laptop"),
        "in-distribution": lambda: in_distribution_table("laptop"),
    },
    "results_full_size": {"full size": full_size_table},
    "results_nine_models": {
        "learning hue": lambda: learning_table("nine_models", "hue"),
        "learning position": lambda: learning_table("nine_models", "position", timed=False),
        "learning lightness": lambda: learning_table("nine_models", "lightness", timed=False),
        "likelihood": lambda: learning_table("vae_likelihood", "hue", "vae"),
    },
    "results_frozen": {
        "factors": frozen_table,
        "pretraining": lambda: frozen_gains("lite0", "lite0_untrained"),
        "end to end": lambda: frozen_gains("lite0", "small_cnn"),
        "recovered": recovered_table,
        "sizes": frozen_sizes_table,
        "methods": frozen_methods_table,
        "cues": frozen_cues_table,
    },
    "comparison": {
        "groups": lambda: groups_table("frozen_cues"),
        "gains": lambda: gains_table("frozen_cues"),
        "controls": lambda: controls_table("frozen_cues"),
        "rules": lambda: rules_table("frozen_cues"),
        "gains, environments": lambda: gains_table("frozen_environments_tuned"),
        "controls, environments": lambda: controls_table("frozen_environments_tuned"),
        "rules, environments": lambda: rules_table("frozen_environments_tuned"),
    },
    "results_cue_strength": {
        "half-way": lambda: half_way_table("laptop", "small_cnn"),
        "falls": lambda: falls("laptop", "small_cnn"),
        "half-way, Lite0": lambda: half_way_table("frozen", "lite0"),
        "falls, Lite0": lambda: falls("frozen", "lite0"),
        "half-way, eight": lambda: half_way_table("cue_strength", "small_cnn"),
        "falls, eight": lambda: falls("cue_strength", "small_cnn"),
    },
    "claims": {"commands": claim_commands, "claims": claim_list},
    "watermark": {
        "texts": text_table,
        "photos": photo_table,
        "conditions": watermark_conditions,
    },
    "results_resnet18": {
        "accuracy": lambda: accuracy_table("laptop_resnet18"),
        "in-distribution": lambda: in_distribution_table("laptop_resnet18"),
    },
}


def markdown(rows: list[Row]) -> str:
    rows.insert(1, ["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(name: str) -> str:
    """A page's text with its tables made again."""
    text = (REPOSITORY / f"docs/{name}.md").read_text()
    for part, make in PAGES[name].items():
        marks = rf"(<!-- table {part} -->\n).*?(<!-- end -->)"
        made = markdown(made) if isinstance(made := make(), list) else made
        text, found = re.subn(marks, lambda m, made=made: f"{m[1]}{made}\n{m[2]}", text, flags=re.S)
        assert found == 1, (
            f"docs/{name}.md: <!-- table {part} --> ... <!-- end --> once, not {found}"
        )
    return text


def main() -> None:
    """Write the tables of the result pages again."""
    write_text(REPOSITORY / "docs/results/laptop/claims.csv", claims_csv())
    for folder in MAPS:
        write_text(REPOSITORY / f"docs/results/{folder}/cue_strength.csv", strength_csv(folder))
        strength_figure(folder)
    gains_figure("frozen_cues")
    for name in PAGES:
        write_text(REPOSITORY / f"docs/{name}.md", page(name))


def claims_csv() -> str:
    return claims("laptop").to_csv(index=False, float_format="%.6g")


def strength_csv(folder: str) -> str:
    return strength(folder).to_csv(index=False, float_format="%.10g")


if __name__ == "__main__":
    typer.run(main)
