"""Published roots: what comes with the repository is enough for a clone, from git and from a web
server, to have nothing to do."""

import hashlib
import json
import re
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from loopback import web_server

from conftest import BIN, REPOSITORY, largest_file, refused
from diagvib.commands import published
from diagvib.commands.compare import runs_folder
from diagvib.commands.published import MOST_MB, STORE, git_size
from diagvib.commands.view import view
from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import read_json, write_digests, write_json
from diagvib.provenance.code import same_code
from diagvib.results.tidy_tables import read_tables
from diagvib.scenes import load_scene
from diagvib.settings.layout import Layout
from diagvib.settings.resolve import PROVENANCE, PUBLISHED, load_config
from diagvib.workflow.ledger import commit, print_verified, verify
from diagvib.workflow.records import record_of
from test_texture_sets import photos
from toy import ROOT, contents, count, diagvib, dvc, environment, git, snakemake, write

pytest.importorskip("dvc", reason="dvc is not installed; it is in the extra `workflow`")

COPY = f"published/{ROOT}"
CLEAN = "0 recorded files are changed, 0 absent, 0 made again"
ANEW = "published/ was made by code that computes otherwise: run `make published` and commit it"


@pytest.fixture(scope="module")
def repository(output, tmp_path_factory) -> Path:
    """A copy of `output` in which its root is published and committed."""
    folder = shutil.copytree(output, tmp_path_factory.mktemp("a") / "published", symlinks=True)
    # As if its recipes had been out of reach when Snakemake wrote the record of a job.
    record = folder / record_of("metadata", f"{ROOT}/results/runs/tiny/zgo/hue-shape/sha256.json")
    write_json(record, read_json(record) | {"input_checksums": {}})
    assert f"published in {COPY}; " in diagvib(folder, "publish", "--config", "toy.yaml")
    keep = folder / "results/metrics/.gitkeep"  # as in this repository
    keep.parent.mkdir(parents=True)
    keep.touch()
    git(folder, "add", "published", "results")
    git(folder, "commit", "--quiet", "-m", "published")
    return folder


def clone_of(repository: Path, folder: Path) -> Path:
    git(folder, "clone", "--quiet", str(repository), "clone")
    # With what is compiled of the code.
    return shutil.copytree(repository / "src", folder / "clone/src", dirs_exist_ok=True).parent


def computed(folder: Path) -> dict[str, bytes]:
    """What training computes. The other two files of a run say when and where."""
    files = contents(folder).items()
    return {path: data for path, data in files if not path.endswith(("run.json", "sha256.json"))}


def test_what_is_published_is_without_images_and_names_no_folder_of_the_machine(repository):
    files = [Path(name) for name in git(repository, "ls-files", "published").split()]
    names = [path.relative_to(COPY) for path in files if path.is_relative_to(COPY)]
    top = {".gitignore", "config.yaml", "dvc.lock", "dvc.yaml"}
    assert {str(path) for path in names if path.parts[:2] != ("results", "metrics")} == top
    assert len(names) > len(top)
    stored = [path for path in files if path.is_relative_to(STORE)]
    assert len(stored) + len(names) == len(files)
    sizes = {(repository / path).stat().st_size for path in stored}
    drawn_files = [
        path
        for kind in ("recipes", "images")
        for path in (repository / COPY / "data" / kind).rglob("*.parquet")
    ]
    assert drawn_files and not sizes & {path.stat().st_size for path in drawn_files}
    assert not [
        path for path in files if str(repository).encode() in (repository / path).read_bytes()
    ]


def test_publishing_again_changes_nothing_but_what_nobody_needs(repository):
    stray = repository / STORE / "files/md5/00/nobody"
    stray.parent.mkdir(exist_ok=True)
    stray.touch()
    assert "; 1 files of earlier versions" in diagvib(repository, "publish", "--root", COPY)
    (run := repository / ROOT / "results/runs/small_cnn/chgo/hue-shape/0").mkdir(parents=True)
    (run / "metrics.json").touch()  # of a study that the configuration does not name
    message = diagvib(repository, "publish", "--config", "toy.yaml")
    assert f"in place of what was published there from {ROOT} or another" in message
    assert "; 0 files of earlier versions" in message
    assert git(repository, "status", "--porcelain", "--", "published") == ""


def test_a_published_root_is_not_replaced_by_itself_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copies, pushed = [], []
    monkeypatch.setattr(published, "check_complete", lambda config: None)
    monkeypatch.setattr(published, "record", lambda copy, config: copies.append(copy))
    monkeypatch.setattr(published, "dvc", lambda *command: pushed.append(command))
    with refused("not published: no DVC repository here"):
        published.publish(load_config(overrides=["root=mine"]))
    assert not Path("published").exists()
    monkeypatch.setattr(published, "why_no_ledger", lambda root: None)
    monkeypatch.setattr(published, "why_no_clone", lambda config: None)
    file = tmp_path / "published/mine/results/page.html"
    (file.parents[1] / "data").mkdir(parents=True)
    file.parent.mkdir()
    file.touch()
    Path("link").mkdir()
    Path("link/mine").symlink_to(file.parents[1])
    Path("published/mine/inner").mkdir()
    for root in (file.parents[1], "link/mine", "link/../published/mine", "published/mine/inner/.."):
        published.publish(load_config(overrides=[f"root={root}"]))
        assert file.exists()
    assert {*copies} == {"published/mine"} and len(pushed) == len(copies)


def test_a_copy_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("check_complete", "why_no_ledger", "why_no_clone"):
        monkeypatch.setattr(published, name, lambda _: None)
    file = tmp_path / "mine/data/a.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(2**18))
    with (
        refused(r"^published/mine/data/a\.bin: cannot be written \(File too large\)"),
        largest_file(2**17),
    ):
        published.publish(load_config(overrides=["root=mine"]))


def test_a_root_whose_files_no_clone_has_is_not_published(tmp_path, monkeypatch):
    network, outside = "def network(n_classes, image_size): ...", tmp_path / "outside"
    baseline = (
        "mine: {model: {name: 'of_mine:network'}, method: erm, optimiser: {name: adam, lr: 0.001}, "
        "batch_size: 8, origin: a test}"
    )
    studies = (
        "title: Mine\nstudies: {mine: {title: Mine, meaning: mine, metrics: accuracy, roles: {target: 3}, "
        "rows: [{splits: [train, val, test], group: id, cells: [[0], [1], [2]]}]}}"
    )
    files = {"lab/mine.yaml": baseline, "of_mine.py": network, "lab/studies.yaml": studies}
    files[".dvc/config"] = (REPOSITORY / ".dvc/config").read_text()
    photos(outside)
    folder = tmp_path / "clone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    write(folder, files)
    before = folder / "published/out/results/page.html"
    before.parent.mkdir(parents=True)
    before.touch()
    shutil.copytree(outside, "photos")
    git(folder, "init", "--quiet")
    git(folder, "add", ".dvc")
    overrides = ["root=out", "sources=embedded", "studies=[zgo]", "baselines=[small_cnn, mine]"]
    overrides += ["baselines_from=[./lab/mine.yaml]", "studies_from=[lab/studies.yaml]"]
    config = load_config(None, [*overrides, "textures=[photos]"])
    problems = {
        "studies_from: lab/studies.yaml": "lab/studies.yaml",
        "baselines_from: lab/mine.yaml": "lab/mine.yaml",
        "textures: photos/Slate 2.png": "photos/Slate 2.png",
        "textures: photos/felt.jpg": "photos",
        "of_mine.py": "of_mine.py",
    }
    for problem, path in problems.items():
        with refused(f"not published: {problem} is not in git; `git add` and"):
            published.publish(config)
        git(folder, "add", path)
    assert published.why_no_clone(config) is None
    for name in (outside, "../outside"):
        elsewhere = load_config(None, [*overrides, f"textures=['{name}']"])
        with refused(f"not published: textures: {name} is outside this folder; copy it"):
            published.publish(elsewhere)
    assert before.exists()


def test_a_clone_pulls_parts_or_all_from_a_web_server_and_has_nothing_to_do(repository, tmp_path):
    clone = clone_of(repository, tmp_path)
    display = dvc(clone, "metrics", "show")
    assert "failed" not in display and f"{COPY}/results/metrics/tiny/zgo.json" in display
    results = clone / COPY / "results"
    handler = partial(SimpleHTTPRequestHandler, directory=repository / STORE)
    with web_server(handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        dvc(clone, "remote", "modify", "--local", "published", "url", address)
        dvc(clone, "pull", f"{COPY}/results/tables")
        assert {path.name for path in results.iterdir()} == {"metrics", "tables"}
        dvc(clone, "pull", f"{COPY}/results/runs/tiny/zgo")
        assert [path.name for path in (results / "runs").iterdir()] == ["tiny"]
        assert f"{COPY}: all is there" in diagvib(clone, "pull")
    assert git(clone, "status", "--porcelain") == ""
    assert CLEAN in diagvib(clone, "verify", "--root", COPY)
    configuration = ("--configfile", f"{COPY}/config.yaml")
    assert "Nothing to be done" in snakemake(clone, "-n", *configuration)
    assert "didn't change, skipping" in dvc(clone, "repro", f"{COPY}/dvc.yaml")
    job = results / "runs/tiny/zgo/hue-shape"
    before = computed(job)
    shutil.rmtree(job)
    steps = {"train": 1, "tabulate": 1, "plot": 1, "all": 1}
    assert count(snakemake(clone, "-n", *configuration)) == steps
    snakemake(clone, *configuration, "--", f"{job.relative_to(clone)}/sha256.json")
    assert computed(job) == before
    dvc(clone, "checkout", "--force", "-R", COPY)
    assert CLEAN in diagvib(clone, "verify", "--root", COPY)
    page = clone / "src/diagvib/report/page.py"
    page.write_text(page.read_text().replace("import", "MORE = 1\nimport", 1))
    assert "made by another version of the code" in diagvib(clone, "pull", COPY)


def test_what_is_published_again_replaces_what_was_pulled(tmp_path, monkeypatch, capsys):
    """Without what is drawn, which may be other, also after a pull that was killed; an edited file, a
    changed metric and a damaged store are named, and cost no images."""
    for name in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG"):
        monkeypatch.setenv(f"DVC_{name}_DIR", str(tmp_path / name))
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    names = ("results/runs", "results/tables", "results/report.html", PROVENANCE)
    outs = [f"{COPY}/{name}" for name in names]
    metrics = f"{COPY}/results/metrics"
    stage = {"cmd": "true", "wdir": "../..", "outs": [{out: {"remote": PUBLISHED}} for out in outs]}
    stage["metrics"] = [{metrics: {"cache": False}}]
    files = {
        ".dvc/config": (REPOSITORY / ".dvc/config").read_text(),
        ".dvcignore": (REPOSITORY / ".dvcignore").read_text(),
        ".gitignore": f"{COPY}/results/*\n!{metrics}\n{COPY}/data\n{COPY}/{PROVENANCE}\n/.dvc/*\n!/.dvc/config\n",
        f"{metrics}/tiny/zgo.json": '{"faavg": 0.5}',
        f"{COPY}/config.yaml": f"root: {COPY}\n",
        f"{COPY}/dvc.yaml": json.dumps({"stages": {"all": stage}}),
        **{f"{COPY}/results/runs/{name}": name for name in "ab"},
        f"{COPY}/results/tables/c": "c",
    }
    runs, tables, page, records = (Path(out) for out in outs)
    image = Path(COPY, "data/images/a.parquet")

    def publish_and_pull(version: str, killed: bool = False) -> None:
        monkeypatch.chdir(origin)
        commit(COPY)
        published.dvc("push", f"{COPY}/dvc.yaml")
        git(origin, "add", ".")
        git(origin, "commit", "--quiet", "-m", version)
        if clone.exists():
            git(clone, "pull", "--quiet")
        else:
            git(tmp_path, "clone", "--quiet", str(origin), str(clone))
        monkeypatch.chdir(clone)
        if killed:
            (runs / ".i-fPc3a_D4R8twCto0vCOA.tmp").touch()  # DVC's, beside a file to be replaced
            published.dvc("pull", f"{COPY}/dvc.yaml")
        published.pull(COPY)
        assert (page.read_text(), records.read_text()) == tuple(
            (origin / path).read_text() for path in (page, records)
        )

    for path, text in files.items():
        (origin / path).parent.mkdir(parents=True, exist_ok=True)
        (origin / path).write_text(text)
    (origin / page).write_text("first")
    (origin / records).write_text("{}")
    git(origin, "init", "--quiet")
    publish_and_pull("first")
    image.parent.mkdir(parents=True)
    image.touch()
    (runs / "a").unlink()
    published.pull(COPY)
    assert (runs / "a").exists() and image.exists()
    (origin / page).write_text("second")
    publish_and_pull("second")
    assert not image.exists()
    image.parent.mkdir(parents=True)
    image.touch()
    (origin / records).write_text('{"b": {}}')
    (origin / runs / "b").write_text("third")
    publish_and_pull("third", killed=True)
    assert not image.exists()
    image.parent.mkdir(parents=True)
    image.touch()
    (runs / "a").write_text("mine")
    with refused(f"{runs}/a; `dvc checkout --force -R {COPY}` replaces them; then pull"):
        published.pull(COPY)
    shutil.rmtree(tables)
    for folder in (".dvc/cache", STORE):
        shutil.rmtree(folder)
    differences = verify(COPY)
    assert differences["unknown"] == [f"{runs}/"] and f"{tables}/" in differences["deleted"]
    assert not differences["modified"] and not print_verified(differences, COPY)
    assert f"{runs}/: not as recorded; which files differ is" in capsys.readouterr().out
    shutil.rmtree(runs)
    git(clone, "checkout", "--", str(STORE))
    digest = hashlib.md5(b"a").hexdigest()
    stored = STORE / "files/md5" / digest[:2] / digest[2:]
    stored.write_text("")
    with refused(f"{stored}: damaged or absent, so that not all was pulled; `git checkout -- "):
        published.pull(COPY)
    git(clone, "checkout", "--", str(STORE))
    published.pull(COPY)
    assert (runs / "a").read_text() == "a" and image.exists()
    Path(metrics, "tiny/zgo.json").write_text('{"faavg": 0.6}')
    differences = verify(COPY)
    assert differences["modified"] == [f"{metrics}/"] and not print_verified(differences, COPY)
    assert f"`git checkout -- {metrics}/` restores" in capsys.readouterr().out


def test_a_root_is_pulled_by_its_name_in_the_repository(tmp_path, monkeypatch):
    files = {".dvc/config": "", f"{COPY}/config.yaml": f"root: {COPY}\n", f"{COPY}/dvc.lock": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with refused(f"; a part of one is got by `dvc pull {COPY}/results/tables`"):
        published.pull(f"{COPY}/results/tables")
    monkeypatch.chdir(tmp_path / PUBLISHED)
    with refused(f"{ROOT}/config.yaml: root: is {COPY}, not {ROOT}; call this in the folder where"):
        published.pull(ROOT)
    with refused(f"the DVC repository is the folder {tmp_path}; call this there"):
        verify(ROOT)


def test_what_is_not_whole_is_made_again(tmp_path):
    config = load_config(None, [f"root={tmp_path}", "studies=[zgo]", "bindings=[shape-hue]"])
    layout, (scene,), names = Layout(tmp_path), config.scenes, ("zgo", "shape-hue")
    files = {
        layout.raw(scene): load_scene(scene).raw_files("official"),
        layout.prepared(scene): ["digits.npz"],
        layout.images(*names): ["0/train.parquet", "4/test.parquet"],
    }
    paths = [folder / name for folder, texts in files.items() for name in texts]
    for path in (*paths, layout.recipes(*names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for folder, texts in files.items():
        write_digests(folder, texts, recipes={"digests": {}}, image_size=64)
    assert not [*published.missing_jobs(config)]
    stages = {paths[0]: "fetch", paths[-3]: "prepare", paths[-2]: "render", paths[-1]: "render"}
    for path, stage in stages.items():
        path.unlink()
        assert [name for name, _ in published.missing_jobs(config)] == [stage]
        path.touch()


def test_what_was_not_pulled_is_to_be_pulled_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(COPY).mkdir(parents=True)
    Path(COPY, "config.yaml").write_text(f"root: {COPY}\n")
    looks = (
        lambda: view(COPY, 0, browser=False),
        lambda: read_tables(Path(COPY, "results/tables")),
        lambda: runs_folder(Path(COPY)),
    )
    for look in looks:
        with refused(f"run `diagvib pull {COPY}`"):
            look()
    Path(COPY, PROVENANCE).touch()
    with refused(f"run `snakemake --cores all --configfile {COPY}/config.yaml`"):
        view(COPY, 0, browser=False)


def test_another_version_is_named_only_where_all_is_as_published(monkeypatch):
    files, folders = {"modified": [], "deleted": [], "anew": []}, [None]

    def incomplete(config):
        raise DiagvibError("4 jobs are left")

    monkeypatch.setattr(published, "changed_metrics", lambda root: folders[-1])

    monkeypatch.setattr(published, "check_complete", incomplete)
    monkeypatch.setattr(published, "_changed_files", lambda root: files)
    config = load_config(None, [f"root={COPY}"])
    assert "made by another version of the code or of its packages: 4" in published.jobs_left(
        config
    )
    folders.append(Path(COPY, "results/metrics"))  # deleted or edited
    message = f"not all is as it was published: `git checkout -- {folders[-1]}` restores"
    assert message in published.jobs_left(config)
    files["anew"].append("a")
    assert "not all is as it was published: 4 jobs are left" in published.jobs_left(config)


def test_the_repositorys_stay_small():
    assert git_size(REPOSITORY / "published")[1] <= MOST_MB * 1e6


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone of this repository, as it was committed, with the demo's results."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("the repository is not in git here")
    folder = tmp_path_factory.mktemp("b")
    git(folder, "clone", "--quiet", str(REPOSITORY), "clone")
    display = diagvib(folder / "clone", "pull", "published/demo")
    assert "all is there" in display, f"{ANEW}\n{display}"
    return folder / "clone"


@pytest.mark.integration
def test_the_demos_root_is_complete_in_a_clone_and_opens(clone):
    assert CLEAN in diagvib(clone, "verify", "--root", "published/demo")
    dry_run = snakemake(clone, "-n", "--configfile", "published/demo/config.yaml")
    assert "Nothing to be done" in dry_run, ANEW
    assert "failed" not in dvc(clone, "metrics", "show")
    commands = re.findall(
        r"^dvc (plots .*?)(?: +#.*)?$", (REPOSITORY / "docs/data.md").read_text(), re.M
    )
    for command in commands:
        assert "failed" not in dvc(clone, *command.split())
    assert commands and "overall" in (clone / "dvc_plots/index.html").read_text()
    command = [BIN / "diagvib", "view", "published/demo", "--no-browser"]
    process = subprocess.Popen(
        command, cwd=clone, env=environment(clone), stdout=subprocess.PIPE, text=True
    )
    try:
        with urlopen(process.stdout.readline().strip()) as page:
            assert page.status == 200 and b"<html" in page.read().lower()
    finally:
        process.terminate()


@pytest.mark.integration
def test_deleted_runs_of_the_demo_are_made_again_the_same(clone):
    """The same to the byte on the same kind of processor, with the same packages; elsewhere the
    same each time, and close (docs/data.md)."""
    runs = clone / "published/demo/results/runs/small_cnn"
    recorded, provenance = computed(runs), read_json(runs / "zgo/shape-hue/0/run.json")
    jobs = {"train": 3, "tabulate": 1, "plot": 1, "all": 1}
    options = ("--configfile", "published/demo/config.yaml")

    def made_again() -> dict[str, bytes]:
        for study in ("zgo", "cgo-2", "fgo-20"):
            shutil.rmtree(runs / study)
        assert count(snakemake(clone, "-n", *options)) == jobs
        snakemake(clone, *options)
        return computed(runs)

    again = made_again()
    anew = read_json(runs / "zgo/shape-hue/0/run.json")
    for key in ("settings", "training", "images"):
        assert anew[key] == provenance[key]
    assert same_code(anew["code"]) == same_code(provenance["code"])
    if again != recorded:
        assert made_again() == again, "training is not deterministic here"
        for name in (name for name in again if name.endswith("metrics.json")):
            groups, recorded_groups = (
                json.loads(content[name])["groups"] for content in (again, recorded)
            )
            for group, scores in groups.items():
                assert abs(scores["accuracy"] - recorded_groups[group]["accuracy"]) < 0.15
    message = diagvib(clone, "verify", "--root", "published/demo")
    assert message.startswith("0 recorded files are changed, 0 absent")


@pytest.mark.integration
def test_the_grid_against_two_cues_is_complete_once_its_images_are_drawn(clone, mirror, tmp_path):
    root = "published/whac_a_mole_laptop"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/train-images-idx3-ubyte.gz").write_text("damaged")
    # The results come even if the sources cannot be had, and then other roots.
    message = diagvib(clone, "pull", root, "published/demo", "--mirror", str(tmp_path), fails=True)
    assert f"{root}: the results are there, but not the images" in message
    assert "published/demo: all is there" in message
    assert CLEAN in diagvib(clone, "verify", "--root", root)
    assert "all is there" in diagvib(clone, "pull", root, "--mirror", str(mirror)), ANEW
    dry_run = snakemake(clone, "-n", "--configfile", f"{root}/config.yaml")
    assert "Nothing to be done" in dry_run, ANEW


# Page's letter -> a file of the demo, and the same file of the toy.
KINDS = {
    "R": "data/recipes/zgo/hue-shape.parquet",
    "I": "data/images/zgo/hue-shape/0/test.parquet",
    "P": "results/runs/tiny/zgo/hue-shape/0/predictions.parquet",
    "V": "results/runs/tiny/zgo/hue-shape/0/exhibits.parquet",
}


def test_the_page_on_sharing_names_the_columns_that_files_have(output, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    text = (REPOSITORY / "docs/data.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| (\w+) \| ([RIPV ]+) \|", text, re.M)
    for letter, path in KINDS.items():
        schema = pq.read_schema(output / ROOT / path)
        columns = {
            name: kind
            for names, kind, letters in rows
            if letter in letters
            for name in re.findall(r"`(\w+)`", names)
        }
        assert columns == {field.name: str(field.type) for field in schema}, path
    monkeypatch.chdir(output)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    code = code.replace("published/demo", ROOT).replace(
        "small_cnn/zgo/shape-hue", "tiny/zgo/hue-shape"
    )
    names = {}
    exec(code.replace("zgo/shape-hue", "zgo/hue-shape"), names)
    tables = [names[name] for name in ("images", "predictions", "frame", "dataset")]
    assert len({*map(len, tables)}) == 1
    assert names["frame"]["image"][0] == names["dataset"]["image"][0] == names["image"].tobytes()
    assert names["image"].shape == (64, 64, 3)
