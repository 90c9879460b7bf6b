"""The comparison of methods: each beside ERM and beside the simple control that knows as much."""

import numpy as np
import pandas as pd
from result_file import REPOSITORY

from diagvib.report.style import MUTED, add_legend, by_baseline, new_panels
from diagvib.results.uncertainty import sample_interval
from result_tables.committed import GROUPS, Row, gain, percent, read, runs

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
        axes.set_yticks(range(len(listed)), [label(folder, method) for _, method in listed])
    drawing.supxlabel("more accurate than ERM where the cues mislead, points", fontsize=9)
    add_legend(drawing)
    path = REPOSITORY / "docs/results" / folder / "gains.png"
    drawing.savefig(path, dpi=110, metadata={"Software": None})


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


def compared(folder: str) -> pd.DataFrame:
    """runs.csv with the method of a baseline and what it is told of the cues."""
    told = read(f"{folder}/metrics").drop_duplicates("baseline").set_index("baseline")
    own = runs(folder)
    told = own["baseline"].map(told["supervision"]).map(TOLD)
    return own.assign(told=told, method=methods(own["baseline"]))


def methods(baselines: pd.Series | pd.Index) -> pd.Series | pd.Index:
    return baselines.str.replace("^tuned_(lite0_)?(env_)?", "", regex=True)
