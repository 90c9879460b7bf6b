"""Textures of the user's own as classes: photos of surfaces in a folder, or in a list of files with
hashes and licences, with the published ones or instead of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import definition_path, file_sha256, text_sha256, whole_file
from diagvib.foundation.messages import say
from diagvib.foundation.seeding import named_generator
from diagvib.foundation.versions import file_version, once_per_version
from diagvib.scenes.digits.factors import classes
from diagvib.scenes.digits.scene import Digits, read_published_samples
from diagvib.scenes.fetch import Source, fetch, read_sources

PUBLISHED = "published"
FEWEST, MOST = 2, 50
_OF_SAMPLE = 3
EXTENSIONS = (".jpg", ".jpeg", ".png", ".tif", ".tiff")
_OTHER_PHOTO = re.compile(
    r".+\.(arw|avif|bmp|cr[23]|dng|gif|hei[cf]|jfif|jp2|jpe|jxl|nef|orf|p[bgnp]m|raf|rw2|webp)",
    re.I,
)
# Tables would read the first ones as missing.
_NAME = re.compile(r"(?!(?:na|nan|null|none)$)[a-z][a-z0-9_. -]{0,39}(?<! )", re.I | re.A)


@dataclass(frozen=True)
class Texture:
    """A class. file: of its photo in data/raw; origin: the user's photo or the entry of a list; both
    None for a published texture."""

    name: str
    file: str | None = None
    origin: Path | Source | None = None


class TexturedDigits(Digits):
    """The digits with other textures, to which no paper's results can be compared."""

    def __init__(self, name: str, textures: Sequence[Texture], lists: Sequence[str]):
        self.name, self.textures, self.depends = name, textures, lists
        names = tuple(texture.name for texture in textures)
        self.factors = {**Digits.factors, "texture": names}
        self.typical = {**Digits.typical, "texture": "wood" if "wood" in names else names[0]}
        self.photos = {
            texture.file: texture.origin for texture in textures if isinstance(texture.origin, Path)
        }
        self.listed = [texture.origin for texture in textures if isinstance(texture.origin, Source)]

    @cached_property
    def sources(self) -> list[Source]:
        published = read_sources(definition_path("sources.yaml"))
        unused = () if self._has_published else ("textures/",)
        return [source for source in published if not source.path.startswith(unused)]

    @property
    def _has_published(self) -> bool:
        return any(texture.file is None for texture in self.textures)

    @cached_property
    def published_samples(self) -> list[dict]:
        """Those of the paper, with textures drawn by the sample's number."""
        names = self.factors["texture"]
        return [
            {
                **sample,
                "texture": named_generator("dataset sample", number, "texture")
                .choice(names, min(_OF_SAMPLE, len(names)), replace=False)
                .tolist(),
            }
            for number, sample in enumerate(
                read_published_samples(definition_path("dataset_samples.yaml"))
            )
        ]

    def licences(self, sources):
        licences = super().licences(sources)
        if sources == "embedded" and not self._has_published:
            licences = licences[:-1]  # that of computed textures
        licences = [*licences, *((source.licence, source.citation) for source in self.listed)]
        if self.photos:
            names = ", ".join(Path(file).stem for file in self.photos)
            licences.append(("unknown", f"textures {names}: photos of whoever made this dataset"))
        return list(dict.fromkeys(licences))

    def raw_files(self, sources):
        textures = [texture.file for texture in self.textures if texture.file]
        return [*super().raw_files(sources), *textures]

    def state(self, mirror):
        digests = {file: _sha256(photo) for file, photo in self.photos.items()}
        return text_sha256(repr(digests)) if digests else ""

    def fetched(self, raw, sources, mirror):
        if sources == "official":
            fetch(self.sources, raw, mirror)
        super().fetched(raw, sources, mirror)

    def fetch(self, raw, mirror):
        """Copy the textures, once they are known to be usable."""
        from diagvib.scenes.digits.textures import check_distinct, read_texture

        _say_unused({photo.parent for photo in self.photos.values()})
        check_distinct({str(photo): read_texture(photo) for photo in self.photos.values()})
        for file, photo in self.photos.items():
            with whole_file(raw / file) as temporary:
                shutil.copyfile(photo, temporary)
        fetch(self.listed, raw, mirror)

    def prepare(self, raw, prepared, sources):
        from diagvib.scenes.digits.prepare import prepare

        published = self.sources if sources == "official" else []
        photos = {texture.name: texture.file for texture in self.textures}
        prepare([*published, *self.listed], raw, prepared, sources, photos)


_sha256 = once_per_version(file_sha256)


def textured_digits(name: str, parts: Sequence[str]) -> TexturedDigits:
    """The digits with the textures of each part: `published`, a folder of photos, or a list of
    files. DiagvibError, naming it, for a part or a texture that cannot be used."""
    return _once(name, tuple(parts), tuple(file_version(Path(part)) for part in parts))


@cache
def _once(name: str, parts: tuple[str, ...], versions: tuple) -> TexturedDigits:
    textures = [texture for part in parts for texture in _textures(part)]
    _check_names(textures)
    if not FEWEST <= len(textures) <= MOST:
        noun = "texture" if len(textures) == 1 else "textures"
        raise DiagvibError(
            f"textures: {', '.join(parts)}: {len(textures)} {noun}, but {FEWEST} to {MOST} are needed; "
            f"photos end in {', '.join(EXTENSIONS)}"
        )
    return TexturedDigits(name, textures, [part for part in parts if _is_list(part)])


def _textures(part: str) -> list[Texture]:
    if part == PUBLISHED:
        return [Texture(name) for name in classes("texture")]
    if _is_list(part):
        return [
            Texture(Path(source.path).stem, source.path, source)
            for source in read_sources(Path(part))
        ]
    return [Texture(photo.stem, f"textures/{photo.name}", photo) for photo in _photos(Path(part))]


def _is_list(part: str) -> bool:
    return part.endswith((".yaml", ".yml"))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DiagvibError(
            f"textures: {folder}: {error.strerror}; name a folder with a photo of each surface, or a "
            f"list of files (NAME.yaml), or `{PUBLISHED}`"
        ) from None


def _photos(folder: Path) -> list[Path]:
    files = _files(folder)
    for path in files:
        if path.is_dir():
            raise DiagvibError(
                f"textures: {path}: is a folder, in which no photos are looked for; move them to {folder}, "
                "or the folder elsewhere"
            )
        if _OTHER_PHOTO.fullmatch(path.name):
            raise DiagvibError(
                f"textures: {path}: photos end in {', '.join(EXTENSIONS)}; save it as one of these, or "
                "move it elsewhere"
            )
        if path.is_symlink() and not path.exists():
            raise DiagvibError(
                f"textures: {path}: is a link to no file; remove it, or put a photo there"
            )
    return [path for path in files if _is_photo(path)]


def _is_photo(path: Path) -> bool:
    return path.name.lower().endswith(EXTENSIONS) and path.is_file()


def _say_unused(folders: set[Path]) -> None:
    for path in (path for folder in sorted(folders) for path in _files(folder)):
        if not _is_photo(path):
            say(f"{path}: left out, because its name is not that of a photo")


def _check_names(textures: Sequence[Texture]) -> None:
    files: dict[str, object] = {}
    for texture in textures:
        place = texture.origin if isinstance(texture.origin, Path) else texture.file or PUBLISHED
        if not _NAME.fullmatch(texture.name):
            raise DiagvibError(
                f"textures: {place}: {texture.name!r} cannot be the name of a class; rename the file to at "
                "most 40 letters a to z, digits, spaces, '_', '.' and '-', which begin with a letter, do not end "
                "with a space, and are not na, nan, null or none"
            )
        if texture.name.casefold() in files:
            raise DiagvibError(
                f"textures: {place}: a texture {texture.name} is there already "
                f"({files[texture.name.casefold()]}); rename one of them"
            )
        files[texture.name.casefold()] = place
