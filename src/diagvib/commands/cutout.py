"""The command `cutout`: masks for a folder of photos."""

from pathlib import Path
from typing import Annotated

import typer

from diagvib.foundation.devices import resolve_device
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.progress import counting


def cutout(
    folder: Annotated[Path, typer.Argument(help="Photos, also in subfolders.")],
    category: Annotated[
        list[str] | None, typer.Option(help="A COCO category; repeatable. Default: car and truck.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Mask R-CNN's weights; default: torch's cache, or a download."),
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option(help="The sha256 of the --weights file, if it is not torchvision's."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Cut objects out of photos. Writes NAME.mask.png next to each photo that shows one and has
    neither a mask nor transparency."""
    from diagvib.models.foregrounds import class_indices, cut_out_photos, load_network, without_mask

    if not folder.is_dir():
        raise DiagvibError(f"{folder}: no such folder; name a folder of photos")
    resolved_device, categories = resolve_device(device), category or ["car", "truck"]
    class_indices(categories)  # report a misspelt category before reading any photo
    net, photos = load_network(resolved_device, weights, sha256), without_mask(folder)
    with counting(f"cutout {folder}", len(photos), "photos") as advance:
        written = cut_out_photos(net, photos, categories, resolved_device, advance)
    print(f"{folder}: {written:,} masks written")
