"""Write the tables of the result pages: our numbers beside the paper's, and the paper's claims.

    python benchmarks/result_pages.py

Reads docs/results/*/runs.csv and config/papers/diagvib6.csv, writes docs/results/*/claims.csv and
the text between `<!-- table NAME -->` and `<!-- end -->` on docs/results_*.md.
"""

import os
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import typer

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

from claims import read_claims  # noqa: E402

from diagvib.foundation.files import read_json, write_text  # noqa: E402
from diagvib.foundation.seeding import named_generator  # noqa: E402
from diagvib.results.uncertainty import half_width, sample_interval  # noqa: E402

# In the order of the paper's FAAvg in ZGO.
FACTORS = ("position", "hue", "lightness", "shape", "scale", "texture")
STUDIES = ("zso", "zgo", "cgo-1", "cgo-2", "cgo-3", "chgo", "fgo-5", "fgo-10", "fgo-20")
FROZEN = {"lite0": "ImageNet weights", "lite0_untrained": "random weights"}
# The paper's network that ours stand beside, and its number of dataset samples.
PAPER, PAPER_SAMPLES = "resnet18", 5
CONTRASTS = [("zgo", "zso"), *((study, "zgo") for study in STUDIES[2:])]


def accuracies(folder: str, group: str = "tested") -> pd.DataFrame:
    """FAAvg by (study, target), a column per dataset sample. group: the cells where the cue
    misleads (in ZSO, which has no cue, all) or, as `id`, those trained on."""
    runs = pd.read_csv(REPOSITORY / "docs/results" / folder / "runs.csv")
    own = runs["id_accuracy"] if group == "id" else runs["ood_accuracy"].fillna(runs["id_accuracy"])
    return own.groupby([runs["study"], runs["target"], runs["sample"]]).mean().unstack("sample")


def paper(metric: str = "faavg") -> pd.DataFrame:
    """The paper's mean and standard error by (study, target), as fractions."""
    table = pd.read_csv(REPOSITORY / "config/papers/diagvib6.csv")
    table = table[(table["baseline"] == PAPER) & (table["metric"] == metric)]
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


def accuracy_table(folder: str) -> list[str]:
    """FAAvg, ours and the paper's, each with its standard error over the dataset samples."""
    ours, theirs = accuracies(folder), paper()
    lines = table(["study", *FACTORS])
    for study in [name for name in STUDIES if name in ours.index]:
        cells = []
        for target in FACTORS:
            own = ours.loc[(study, target)]
            text = plus_minus(own.mean(), own.std(ddof=1) / len(own) ** 0.5)
            if (study, target) in theirs.index:
                text += f" / {plus_minus(*theirs.loc[(study, target)])}"
            cells.append(text)
        lines.append(line([study.upper(), *cells]))
    return lines


def in_distribution_table(folder: str) -> list[str]:
    """Accuracy on test images like those trained on, and its rank correlation with the paper's
    FAAvg beside that of our FAAvg."""
    ours, same, theirs = accuracies(folder), accuracies(folder, "id"), paper()["mean"]
    lines = table(["study", *FACTORS, "correlation with the paper", "of FAAvg"])
    for study in [name for name in STUDIES if name in ours.index]:
        cells = [f"{100 * same.loc[(study, target)].mean():.0f}" for target in FACTORS]
        if study in theirs.index:
            order = theirs.loc[study].reindex(FACTORS)
            for own in (same, ours):
                means = own.loc[study].mean(axis=1).reindex(FACTORS)
                cells.append(f"{means.corr(order, 'spearman'):.2f}")
        lines.append(line([study.upper(), *cells, *[""] * (len(FACTORS) + 2 - len(cells))]))
    return lines


def claim_table(folder: str) -> list[str]:
    """The claims on studies: our difference with its interval, and the paper's."""
    own = claims(folder)
    own = own[own["study"] != own["reference"]]
    lines = table(["difference of FAAvg", *FACTORS[1:]])
    for (study, reference), of_study in own.groupby(["study", "reference"], sort=False):
        lines.append(line([f"{study} - {reference}".upper(), *map(claim_text, records(of_study))]))
    return lines


def neighbour_table(folder: str) -> list[str]:
    """The claims on neighbouring factors in ZGO."""
    own = records(claims(folder).query("study == reference"))
    lines = table(["difference of FAAvg in ZGO", "ours / paper"])
    return lines + [line([f"{r.target} - {r.reference_target}", claim_text(r)]) for r in own]


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


def full_size_table() -> list[str]:
    """Runs with all images beside those with a tenth (dataset sample 0), and the paper's averages
    over five cues and five samples, of which it prints no single one."""
    folder = REPOSITORY / "docs/results"
    keys = ["study", "binding", "sample"]
    tenth = pd.read_csv(folder / "laptop/runs.csv").set_index(keys)
    whole = pd.read_csv(folder / "laptop_full_size/runs.csv").set_index(keys)
    averages, lowest = paper(), paper("famin")
    lines = table(["study, target-cue", "a tenth", "all images", "paper, FAAvg", "paper, FAMin"])
    for key in (key for study in STUDIES for key in whole.index if key[0] == study):
        cells = []
        for row in (tenth.loc[key], whole.loc[key]):
            tested = f"{100 * row['id_accuracy']:.1f} in distribution"
            if row["ood_n"] > 0:
                tested = f"**{100 * row['ood_accuracy']:.1f}**; {tested}"
            cells.append(tested)
        place = (key[0], whole.loc[key, "target"])
        cells += [
            plus_minus(*of.loc[place]) if place in of.index else "" for of in (averages, lowest)
        ]
        lines.append(line([f"{key[0].upper()}, {key[1]}", *cells]))
    return lines


def frozen_table() -> list[str]:
    """Accuracy by target without a shortcut (ZSO) and where it misleads (ZGO, mean over five cues),
    of linear layers on features, and the network with weights minus the one without."""
    runs = pd.read_csv(REPOSITORY / "docs/results/frozen/runs.csv")
    values = runs["ood_accuracy"].fillna(runs["id_accuracy"])
    by = [runs[name] for name in ("target", "study", "baseline")]
    means = values.groupby(by).mean().unstack(["study", "baseline"])
    columns = [(study, name) for study in ("zso", "zgo") for name in ("lite0", "lite0_untrained")]
    lines = table(["target", *(f"{study.upper()}, {FROZEN[name]}" for study, name in columns)])
    for target in FACTORS:
        lines.append(line([target, *(f"{100 * means.loc[target, one]:.1f}" for one in columns)]))
    every = [f"{100 * means[one].mean():.1f}" for one in columns]
    return [*lines, line(["mean", *every])]


def frozen_methods_table() -> list[str]:
    """Methods on frozen features: means and 95 % intervals over the dataset samples, and the gain
    over ERM, paired by sample."""
    runs = pd.read_csv(REPOSITORY / "docs/results/frozen_environments/runs.csv")
    metrics = pd.read_csv(REPOSITORY / "docs/results/frozen_environments/metrics.csv")
    accuracy = runs.pivot(index="sample", columns="baseline", values="ood_accuracy")
    lines = table(
        ["method", "in distribution", "test environment", "95 % interval", "more than ERM"]
    )
    for name in sorted(accuracy, key=lambda name: name != "lite0_erm_env"):
        own = metrics[(metrics["baseline"] == name) & (metrics["study"] == "o2o-hard")]
        own = own.set_index("metric")
        cells = [f"{100 * own.loc[metric, 'mean']:.1f}" for metric in ("id_accuracy", "accuracy")]
        cells.append("{:.1f} to {:.1f}".format(*100 * own.loc["accuracy", ["low", "high"]]))
        gain = accuracy[name] - accuracy["lite0_erm_env"]
        low, high = sample_interval(accuracy[name], accuracy["lite0_erm_env"])
        more = f"{100 * gain.mean():+z.1f} ({100 * low:+z.1f} to {100 * high:+z.1f})"
        cells.append(more if gain.any() else "")
        lines.append(line([name.removeprefix("lite0_").removesuffix("_env"), *cells]))
    return lines


def frozen_cues_table() -> list[str]:
    """Methods on frozen features with two shortcuts: accuracy where the cues agree with the target,
    where one misleads and where both do, and the gain over ERM there, paired by sample."""
    runs = pd.read_csv(REPOSITORY / "docs/results/frozen_whac_a_mole/runs.csv")
    groups = {
        "common": "both agree",
        "no-cue-1": "position misleads",
        "no-cue-2": "hue misleads",
        "neither": "both mislead",
    }
    lines = table(["method", *groups.values(), "more than ERM"])
    both = runs.pivot(index="sample", columns="baseline", values="neither_accuracy")
    for name, own in runs.groupby("baseline", sort=False):
        cells = [f"{100 * own[f'{group}_accuracy'].mean():.1f}" for group in groups]
        low, high = sample_interval(both[name], both["lite0_erm"])
        gain = 100 * (both[name] - both["lite0_erm"]).mean()
        more = f"{gain:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})" if gain else ""
        lines.append(line([name.removeprefix("lite0_"), *cells, more]))
    return lines


def claim_commands() -> list[str]:
    """What each command of claims.yaml takes."""
    heads = ["", "command", "minutes", "memory, GiB", "disk, MB", "committed tables"]
    lines = table(heads)
    for number, made in enumerate(read_claims(), 1):
        costs = [str(made[key]) for key in ("minutes", "gib", "mb")]
        committed = f"`{made['committed']}`" if "committed" in made else ""
        lines.append(line([str(number), f"`{made['command']}`", *costs, committed]))
    return lines


def claim_list() -> list[str]:
    """Every claim of claims.yaml, its number bold, and how far a new run may be off."""
    lines = table(["claim", "on", "command", "a new run, ±"])
    for number, made in enumerate(read_claims(), 1):
        for claim in made["claims"]:
            text = re.sub("{(.*)}", r"**\1**", claim["says"]).replace("|", "\\|")
            page = os.path.relpath(claim["page"], "docs")
            lines.append(
                line(
                    [
                        text,
                        f"[{Path(page).name}]({page})",
                        str(number),
                        f"{claim.get('within', '')}",
                    ]
                )
            )
    return lines


def watermark_result() -> dict:
    """The newest result of `benchmarks/watermark.py`."""
    return read_json(max((REPOSITORY / "benchmarks/results").glob("watermark-cpu-*.json")))


def text_table() -> list[str]:
    """The effect of each text on P(carton), and how much larger that of the published one is, paired
    by photo."""
    result = watermark_result()
    rises = [np.log([photo["factor"] for photo in row["photos"]]) for row in result["rows"]]
    shape = (result["resamples"], len(rises[0]))
    drawn = named_generator("watermark").integers(shape[1], size=shape)
    heads = ["text", "", "P(carton) times", "95 % interval", "rises on", "rank"]
    heads += ["median rank", "mean P(carton)", "published text, times this"]
    lines = table(heads)
    for row, rise in zip(result["rows"], rises, strict=True):
        more = rises[0] - rise
        low, high = np.exp(np.quantile(more[drawn].mean(1), (0.025, 0.975)))
        before, after = row["p_carton"], row["p_carton"] + row["delta_p_carton"]
        cells = [f"`{row['text']}`", row["kind"], f"{row['factor']:.1f}"]
        cells += [f"{row['low']:.1f} to {row['high']:.1f}", f"{(rise > 0).sum()} of {len(rise)}"]
        cells += [str(row["rank"]), f"{row['median_rank']:g}"]
        cells += [f"{100 * before:.2f} % to {100 * after:.2f} %"]
        cells += [f"{np.exp(more.mean()):.1f} ({low:.1f} to {high:.1f})" if more.any() else ""]
        lines.append(line(cells))
    return lines


def photo_table() -> list[str]:
    """The effect of the published watermark on each photo."""
    result = watermark_result()
    found = {photo["photo"]: photo for photo in result["rows"][0]["photos"]}
    lines = table(["photo", "licence", "author", "P(carton)", "times", "rank"])
    for folder, photos in result["licences"].items():
        for name, (licence, author) in photos.items():
            own = found[name]
            numbers = [f"{100 * own['p_carton']:.4f} %", f"{own['factor']:.1f}", str(own["rank"])]
            lines.append(line([f"`{folder}/{name}`", licence, author, *numbers]))
    return lines


def watermark_conditions() -> list[str]:
    its = watermark_result()
    return [
        f"{its['date']}, {its['machine']['cpu']}, torch {its['versions']['torch']}. Weights: sha256 "
        f"`{its['weights_sha256'][:16]}`. Font: {its['font']}. {its['resamples']:,} resamples of the photos."
    ]


def records(frame: pd.DataFrame) -> list:
    return list(frame.itertuples(index=False))


def plus_minus(mean: float, error: float) -> str:
    """In whole percent; no spread is printed where none was seen."""
    return f"{100 * mean:.0f} ± {100 * error:.0f}" if 100 * error >= 0.5 else f"{100 * mean:.0f}"


def table(heads: list[str]) -> list[str]:
    return [line(heads), line(["---", *["---:"] * (len(heads) - 1)])]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


# Page -> name of a table -> what makes its lines.
PAGES: dict[str, dict[str, Callable[[], list[str]]]] = {
    "results_small_cnn": {
        "accuracy": lambda: accuracy_table("laptop"),
        "claims": lambda: claim_table("laptop"),
        "neighbours": lambda: neighbour_table("laptop"),
        "in-distribution": lambda: in_distribution_table("laptop"),
    },
    "results_full_size": {"full size": full_size_table},
    "results_frozen": {
        "factors": frozen_table,
        "methods": frozen_methods_table,
        "cues": frozen_cues_table,
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


def page(name: str) -> str:
    """A page's text with its tables made again."""
    text = (REPOSITORY / f"docs/{name}.md").read_text()
    for part, make in PAGES[name].items():
        marks = rf"(<!-- table {part} -->\n).*?(<!-- end -->)"
        made = "".join(f"{one}\n" for one in make())
        text, found = re.subn(marks, lambda m, made=made: m[1] + made + m[2], text, flags=re.S)
        assert found == 1, (
            f"docs/{name}.md: <!-- table {part} --> ... <!-- end --> once, not {found}"
        )
    return text


def main() -> None:
    """Write the tables of the result pages again."""
    write_text(REPOSITORY / "docs/results/laptop/claims.csv", claims_csv())
    for name in PAGES:
        write_text(REPOSITORY / f"docs/{name}.md", page(name))


def claims_csv() -> str:
    return claims("laptop").to_csv(index=False, float_format="%.6g")


if __name__ == "__main__":
    typer.run(main)
