"""Our numbers of DiagViB-6 beside the paper's, and the paper's claims."""

from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
from result_file import REPOSITORY

from diagvib.results.uncertainty import half_width, sample_interval
from diagvib.settings.baselines import load_settings
from result_tables.committed import (
    FACTORS,
    STUDIES,
    Row,
    percent,
    plus_minus,
    read,
    records,
    runs,
    studies,
    tested,
)

# The paper's network that ours stand beside, and its number of dataset samples.
PAPER, PAPER_SAMPLES = "resnet18", 5
CONTRASTS = [("zgo", "zso"), *((study, "zgo") for study in STUDIES[2:])]


def accuracies(folder: str, group: str = "tested") -> pd.DataFrame:
    """FAAvg by (study, target), a column per dataset sample. group: the cells where the cue
    misleads (in ZSO, which has no cue, all) or, as `id`, those trained on."""
    own = runs(folder)
    values = own["id_accuracy"] if group == "id" else tested(own)
    return values.groupby([own["study"], own["target"], own["sample"]]).mean().unstack("sample")


@cache
def paper(metric: str = "faavg", baseline: str = PAPER) -> pd.DataFrame:
    """The paper's mean and standard error by (study, target), as fractions."""
    table = pd.read_csv(REPOSITORY / "config/papers/diagvib6.csv")
    table = table[(table["baseline"] == baseline) & (table["metric"] == metric)]
    spread = np.where(table["spread_kind"] == "std", PAPER_SAMPLES**0.5, 1)
    return pd.DataFrame(
        {"mean": table["mean_percent"] / 100, "stderr": table["spread_percent"] / spread / 100}
    ).set_index([table["study"].str.lower(), table["factor"].rename("target")])


def printed(theirs: pd.DataFrame, study: str, target: str) -> str:
    """One of the paper's numbers; empty where it has none. theirs: from `paper`."""
    cell = (study, target)
    return plus_minus(*theirs.loc[cell]) if cell in theirs.index else ""


def printed_both(study: str, target: str, baseline: str = PAPER) -> Row:
    """The paper's average over all cues, and that of the worst one."""
    return [printed(paper(metric, baseline), study, target) for metric in ("faavg", "famin")]


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
    rows = [["study, target-cue", "a tenth", "all images", "paper, mean", "paper, worst cue"]]
    for key in (key for study in STUDIES for key in whole.index if key[0] == study):
        row = [f"{key[0].upper()}, {key[1]}"]
        for its in (tenth.loc[key], whole.loc[key]):
            tested = f"{100 * its['id_accuracy']:.1f} in distribution"
            misled = f"**{100 * its['ood_accuracy']:.1f}**; " if its["ood_n"] > 0 else ""
            row.append(misled + tested)
        rows.append(row + printed_both(key[0], whole.loc[key, "target"]))
    return rows


def protocol_table() -> list[Row]:
    """Runs of the paper's resnet18 under its protocol, beside small_cnn with as many images, and
    the paper's averages over five cues and five samples."""
    own = runs("paper_protocol")
    small = tested(runs("laptop_full_size").set_index(["study", "binding"]))
    rows = [
        [
            "study, target-cue",
            "resnet18",
            "paper, mean",
            "paper, worst cue",
            "small_cnn",
            "epoch kept",
        ]
    ]
    own = own.assign(tested=[*tested(own)])
    for (study, binding), cell in own.groupby(["study", "binding"], sort=False):
        samples = f" ({len(cell)} samples)" * (len(cell) > 1)
        row = [f"{study.upper()}, {binding}{samples}", percent(cell["tested"].mean())]
        row += printed_both(study, cell["target"].iloc[0])
        beside = small.get((study, binding))
        epochs = ", ".join(map(str, cell["selected_epoch"]))
        rows.append([*row, "" if beside is None else percent(beside), epochs])
    return rows


def learning_table(
    folder: str, target: str, model: str | None = None, timed: bool = True
) -> list[Row]:
    """What each model learns of a target in ZSO: its accuracy, the paper's with its standard error,
    and the accuracy on validation images after the first epochs of the last phase. model: the
    paper's, if all rows are ways to train it."""
    cell = "study == 'zso' and binding == @target"
    times = read(f"{folder}/run_times").query(cell).set_index("baseline") if timed else None
    history = read(f"{folder}/history").dropna(subset="val_accuracy")
    history = history.query(cell).groupby("baseline")
    rows = [["model", "accuracy", "paper", "after epochs 1 to 8", "epochs"]]
    rows[0] += ["images/s", "minutes"] if timed else []
    for run in records(runs(folder).query(cell)):
        epochs = history.get_group(run.baseline)["val_accuracy"]
        row = [run.baseline, percent(run.id_accuracy)]
        row += [printed(paper(baseline=model or run.baseline), run.study, run.target)]
        row += [" ".join(f"{100 * value:.0f}" for value in epochs.head(8)), str(len(epochs))]
        if timed:
            time = times.loc[run.baseline]
            row += [f"{time['images_per_second']:.0f}", f"{time['seconds_train'] / 60:.0f}"]
        rows.append(row)
    return rows


def misled_table(folder: str, study: str, binding: str, model: str | None = None) -> list[Row]:
    """What each model makes of a shortcut: its accuracy in distribution and where the cue misleads,
    with the paper's averages over all five cues, and the least of any cue. model: as for
    `learning_table`."""
    rows = [
        ["model", "in distribution", "cue misleads", "paper, mean", "paper, worst cue", "epochs"]
    ]
    epochs = read(f"{folder}/history").query("study == @study and binding == @binding")
    epochs = epochs.dropna(subset="val_accuracy").groupby("baseline").size()
    for run in records(runs(folder).query("study == @study and binding == @binding")):
        row = [run.baseline, percent(run.id_accuracy), percent(run.ood_accuracy)]
        row += printed_both(study, run.target, model or run.baseline)
        rows.append([*row, str(epochs[run.baseline])])
    return rows


def cells_table(folder: str, cells: list[tuple[str, str]], group: str = "tested") -> list[Row]:
    """Each model's accuracy in several cells, (study, binding), and the paper's over all cues.
    group: where the cue misleads (in ZSO, which has no cue, all), or `id`, without the paper's."""
    own = runs(folder)
    values = by_cell(own, tested(own) if group == "tested" else own["id_accuracy"])
    rows = [cell_heads("model", cells=cells)]
    for name in own["baseline"].unique():
        row = [values[name, *cell] for cell in cells]
        if group == "tested":
            theirs = paper(baseline=name)
            for at, (study, binding) in enumerate(cells):
                if number := printed(theirs, study, binding.partition("-")[0]):
                    row[at] += f" / {number}"
        rows.append([name, *row])
    return rows


def by_cell(own: pd.DataFrame, accuracy: pd.Series) -> dict[tuple[str, str, str], str]:
    """Accuracies of runs, in percent, by (baseline, study, binding)."""
    names = own[["baseline", "study", "binding"]].itertuples(index=False, name=None)
    return dict(zip(names, map(percent, accuracy), strict=True))


def cell_heads(*first: str, cells: list[tuple[str, str]]) -> Row:
    return [*first, *(f"{study.upper()}, {binding}" for study, binding in cells)]


def tuned_table(folder: str, tuned: str, cells: list[tuple[str, str]]) -> list[Row]:
    """Accuracy in several cells with a model's usual learning rate, and with the one that a tuning
    chose; blank where it was not run. tuned: a folder with runs of `tuned_MODEL` and their
    settings."""
    own = runs(tuned)
    every, given = pd.concat([runs(folder), own]), REPOSITORY / f"docs/results/{tuned}/tuned.yaml"
    values = by_cell(every, tested(every))
    rows = [cell_heads("model", "learning rate", cells=cells)]
    for chosen in own["baseline"].unique():
        usual = chosen.removeprefix("tuned_")
        for name in (usual, chosen):
            rate = load_settings(name, [str(given)])["optimiser"]["lr"]
            rows.append([usual, f"{rate:g}", *(values.get((name, *cell), "") for cell in cells)])
    return rows


def rates_table(folder: str) -> list[Row]:
    """The validation losses of a tuning's trials: a row per model, a column per learning rate."""
    table = read(f"{folder}/tuning").pivot(
        index=["baseline", "binding"], columns="optimiser.lr", values="score"
    )
    rows = [["model", "target", *(f"{rate:g}" for rate in table.columns)]]
    for (name, target), losses in table.iterrows():
        texts = [f"{loss:.4f}" for loss in losses]
        texts[losses.argmin()] = f"**{losses.min():.4f}**"
        rows.append([name, target, *texts])
    return rows


def claims_csv() -> str:
    return claims("laptop").to_csv(index=False, float_format="%.6g")
