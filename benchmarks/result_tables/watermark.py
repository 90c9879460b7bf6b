"""What ImageNet-W's watermark does to a network, from the newest result of `watermark.py`."""

import numpy as np
from result_file import REPOSITORY

from diagvib.foundation.files import read_json
from diagvib.foundation.seeding import named_generator
from result_tables.committed import Row


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
    rows = [["text", "kind", "P(carton), factor", "95 % interval", "rises on", "rank"]]
    rows[0] += ["median rank", "mean P(carton)", "published / this"]
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
