"""The comparison of methods: each beside ERM and beside the simple control that knows as much."""

from functools import cache

import numpy as np
import pandas as pd
from result_file import REPOSITORY

from diagvib.results.uncertainty import sample_interval
from result_tables.committed import GROUPS, Row, gain, misled_accuracy, percent, read, runs

# Method -> its control.
RETRAINING = ("afr", "self", "dpe", "cb_llr")
CONTROLS = dict.fromkeys(RETRAINING, "llr")
CONTROLS |= dict.fromkeys(("group_dro", "di", "subg", "dfr", "dpe_cues"), "rwg")
# Where the rows of retrained heads are from before the run's rule of selection chose a head's epoch.
UNSELECTED = ("frozen_cues", "frozen_environments_tuned", "environments_tuned", "cues_tuned")
TOLD = {
    "none": "nothing",
    "environments": "environments",
    "cue_types": "which factors are cues",
    "cues": "all cues",
}
# Groups of test images with two cues, by what the first cue does.
PARTS = {
    "all": [*GROUPS],
    "misleads": ["no-cue-1", "neither"],
    "agrees": ["common", "no-cue-2"],
}
PART_TITLES = {"all": "all images", "misleads": "cue misleads"}
# Files of runs with several seeds, by whether the methods' settings were tuned.
SEEDED = {"tuned": "cues_tuned", "not tuned": "cues"}
RULES = {
    "val_accuracy": "all validation images",
    # Both environments have equally many.
    "val_environment_accuracy": "all validation images",
    "val_worst_group": "their worst group",
    "oracle": "all test images",
}


def groups_table(folder: str) -> list[Row]:
    """Every method of the comparison on two cues: accuracy by group of images, with each target."""
    own = compared(folder).query("study == 'whac-95'")
    titles = [*GROUPS.values(), "all images"]
    heads = [f"{target}: {title}" for target in own["target"].unique() for title in titles]
    images = own[[f"{group}_n" for group in GROUPS]].iloc[0].to_numpy(float)
    rows = [["told", "method", *heads]]
    for told, method in in_order(folder):
        each = own[own["method"] == method].groupby("target", sort=False)
        means = each[[f"{group}_accuracy" for group in GROUPS]].mean().to_numpy()
        every = np.column_stack([means, means @ images / images.sum()])
        rows.append([told, label(folder, method), *map(percent, every.flat)])
    return rows


def one_cue_table() -> list[Row]:
    """Methods told one of two cues: accuracy in distribution and the gaps, mean ± standard error."""
    table = pd.read_csv(REPOSITORY / "benchmarks/results/whac-95-cpu-2026-11-22.csv")
    columns = ["id_accuracy", "cue_1_gap", "cue_2_gap", "joint_gap"]
    rows = [["method", "told", "I.D. Acc", "position gap", "hue gap", "joint gap"]]
    for record in table.drop_duplicates("baseline").to_dict("records"):
        numbers = (
            f"{100 * record[name]:.1f} ± {100 * record[f'{name}_stderr']:.1f}" for name in columns
        )
        told = {**TOLD, "cue-1": "position", "cue-2": "hue"}.get(record["told"], record["told"])
        rows.append([record["baseline"], told, *numbers])
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
            rows.append([told, label(folder, method), *cells])
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
            rows.append([label(folder, method), label(folder, control), *cells])
    return rows


def rules_table(folder: str) -> list[Row]:
    """Accuracy where all cues mislead, of the trial and epoch that a rule chooses."""
    trials = read(f"{folder}/tuning")
    rules = [rule for rule in RULES if rule in trials["rule"].to_numpy()]
    best = trials[trials["chosen"]]
    misled = "neither_accuracy" if "neither_accuracy" in best else "ood_accuracy"
    chosen = best.pivot(index="baseline", columns="rule", values=misled)[rules]
    rows = [["method", *map(RULES.get, rules)]]
    chosen.index = methods(chosen.index)
    for method, each in chosen.sort_values(rules[0], ascending=False, kind="stable").iterrows():
        rows.append([label(folder, str(method)), *map(percent, each)])
    return rows


@cache
def overall() -> pd.DataFrame:
    """Accuracy of each method over all test images of the studies with two cues, best first; and what
    it has more than ERM: over all images, with its interval, where the first cue misleads, and where
    it agrees."""
    rows = []
    for folder in ("cues_tuned", "frozen_cues"):
        own = beside_erm(folder)
        for setting, part in own.groupby(["study", "target", "told", "method"], sort=False):
            low, high = sample_interval(part["all"], part["all_erm"])
            more = {name: (part[name] - part[f"{name}_erm"]).mean() for name in PARTS}
            row = dict(zip(("study", "target", "told", "method"), setting, strict=True))
            row |= {
                "accuracy": part["all"].mean(),
                "more": more.pop("all"),
                "low": low,
                "high": high,
            }
            rows.append({"folder": folder, **row, **more})
    order = pd.DataFrame(rows).sort_values("accuracy", ascending=False, kind="stable")
    return order.sort_values(["folder", "study", "target"], kind="stable", ignore_index=True)


def beside_erm(folder: str) -> pd.DataFrame:
    """Accuracy in the PARTS of the test images, of each run and of ERM's on the same sample."""
    own = in_parts(compared(folder).query("study in ['whac-95', 'cue-1-95']"))
    keys = ["study", "target", "sample"]
    erm = own.query("method == 'erm'").set_index(keys)[[*PARTS]]
    return own.join(erm.add_suffix("_erm"), on=keys)


def in_parts(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs with their accuracy in the PARTS of the test images."""
    for name, groups in PARTS.items():
        counts = runs[[f"{group}_n" for group in groups]].to_numpy(float)
        right = counts * runs[[f"{group}_accuracy" for group in groups]].to_numpy(float)
        runs = runs.assign(**{name: right.sum(axis=1) / counts.sum(axis=1)})
    return runs


@cache
def seeded_gains() -> pd.DataFrame:
    """What methods have more than ERM with several seeds, in the PARTS of the test images: mean over
    seeds and samples, its interval over samples, and the lowest and highest mean of a seed."""
    rows = []
    for settings, name in SEEDED.items():
        own = in_parts(read(f"seeds/{name}")).assign(method=lambda own: methods(own["baseline"]))
        keys = ["sample", "seed"]
        erm = own.query("method == 'erm'").set_index(keys)[[*PARTS]]
        for method, each in own.query("method != 'erm'").groupby("method"):
            accuracies = each.set_index(keys)[[*PARTS]]
            change = accuracies - erm.loc[accuracies.index]
            of_seeds = change.groupby("seed").mean()
            pairs = [runs.groupby("sample").mean() for runs in (accuracies, erm)]
            for part in PARTS:
                low, high = sample_interval(*(runs[part] for runs in pairs))
                reach = (of_seeds[part].min(), of_seeds[part].max())
                rows.append([settings, method, part, change[part].mean(), low, high, *reach])
    heads = ["settings", "method", "part", "mean", "low", "high", "lowest", "highest"]
    return pd.DataFrame(rows, columns=heads)


def seeds_table() -> list[Row]:
    """`seeded_gains`, a row for each method, the best tuned one first."""
    rows = [["method", *(f"{name}, {title}" for name in SEEDED for title in PART_TITLES.values())]]
    cells = seeded_gains().set_index(["method", "settings", "part"])
    means = cells["mean"].unstack(["settings", "part"])
    order = means.sort_values([("tuned", "all")], ascending=False, kind="stable")
    for method in order.index:
        keys = [(method, name, part) for name in SEEDED for part in PART_TITLES]
        rows.append(
            [str(method), *(_span(cells.loc[key]) if key in cells.index else "" for key in keys)]
        )
    return rows


def _span(cell: pd.Series) -> str:
    names = ("mean", "low", "high", "lowest", "highest")
    mean, low, high, lowest, highest = (f"{100 * cell[name]:+z.1f}" for name in names)
    return f"{mean} ({low} to {high}; seeds {lowest} to {highest})"


def overall_table(folder: str, study: str, target: str, least: float = 0) -> list[Row]:
    """`overall`, of one network on one study and target. least: leaves out methods that are nowhere
    further from ERM."""
    own = overall().query("folder == @folder and study == @study and target == @target")
    far = own[["more", "misleads", "agrees"]].abs().max(axis=1) >= least
    rows = [
        [
            "method",
            "told",
            "all images, %",
            "over ERM",
            "over ERM, cue misleads",
            "over ERM, cue agrees",
        ]
    ]
    for row in own[far | (own["method"] == "erm")].itertuples():
        more = f"{100 * row.more:+z.1f} ({100 * row.low:+z.1f} to {100 * row.high:+z.1f})"
        parts = (f"{100 * change:+z.1f}" for change in (row.misleads, row.agrees))
        rows.append([label(folder, row.method), row.told, percent(row.accuracy), more, *parts])
        if row.method == "erm":
            rows[-1][3:] = [""] * 3
    return rows


def label(folder: str, method: str) -> str:
    """A method's name, with a mark if its runs kept the last epoch of a retrained head."""
    unselected = folder in UNSELECTED and method in (*RETRAINING, "llr", "dpe_cues")
    return f"{method} †" if unselected else method


def in_order(folder: str) -> list[tuple[str, str]]:
    """What a method is told of the cues, and its name; best first where all cues mislead."""
    own = compared(folder)
    means = next(iter(misled(folder).values())).mean()
    best = means.sort_values(ascending=False, kind="stable").index
    told = own.drop_duplicates("method").set_index("method")["told"]
    return [(name, method) for name in TOLD.values() for method in best if told[method] == name]


def misled(folder: str) -> dict[str, pd.DataFrame]:
    """Study and target -> accuracy where every cue misleads, by dataset sample, a column per method."""
    table = compared(folder)
    table["misled"] = misled_accuracy(table)
    return {
        f"{study.upper()}, {target}": group.pivot(index="sample", columns="method", values="misled")
        for (study, target), group in table.groupby(["study", "target"], sort=False)
    }


def compared(folder: str) -> pd.DataFrame:
    """runs.csv with the method of a baseline and what it is told of the cues."""
    told = read(f"{folder}/metrics").drop_duplicates("baseline").set_index("baseline")
    own = runs(folder)
    told = own["baseline"].map(told["supervision"]).map(TOLD)
    return own.assign(told=told, method=methods(own["baseline"]))


def methods(baselines: pd.Series | pd.Index) -> pd.Series | pd.Index:
    return baselines.str.replace("^tuned_(lite0_)?(env_)?", "", regex=True)
