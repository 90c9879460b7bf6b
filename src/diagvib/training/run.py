"""The train stage: image files in, run folders out. One call trains the dataset samples of one
(study, binding), each with all seeds."""

import time
from collections.abc import Sequence
from dataclasses import replace

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.messages import say
from diagvib.foundation.plug_ins import out_of_memory
from diagvib.provenance.code import package_versions
from diagvib.provenance.finished import RUN_RECORD, is_finished, other_versions
from diagvib.settings.layout import Run
from diagvib.training.callbacks import summary_writer
from diagvib.training.checkpoints import Checkpoint
from diagvib.training.doubts import cell_counts, run_doubts, tested_cells
from diagvib.training.fit import fit
from diagvib.training.job import Folders, Job
from diagvib.training.load import dataset_metadata, load, load_test
from diagvib.training.prediction import predict_test
from diagvib.training.record import write_record, write_results, write_weights
from diagvib.training.saliency import shares
from diagvib.training.visualisations import SALIENCY_IMAGES, shown_images, write_visualisations


def train_runs(job: Job, runs: Sequence[Run], folders: Folders) -> None:
    """Train a baseline on each run's images and write the run's folder. runs: samples and seeds, or
    replicates on one, of a (baseline, study, binding). An existing run made with the same settings,
    images and code is kept, even if packages have other versions since, which is then said.

    DiagvibError for files that do not belong together, settings that do not fit, a loss that is not
    a number, or too little GPU memory.
    """
    if folders.curves:
        summary_writer()
    metadata = [dataset_metadata(job.datasets, run) for run in runs]
    job = replace(job, code=job.present_code(runs[0]), versions=package_versions(job.settings))
    for run, run_metadata in zip(runs, metadata, strict=True):
        folder = folders.runs / run.folder
        provenance = job.expected_provenance(run, run_metadata)
        seeded_job = replace(
            job, protocol=replace(job.protocol, seed=run.training_seed(job.protocol.seed))
        )
        checkpoint = seeded_job.checkpoint(provenance, folders.checkpoints / f"{run.folder}.pt")
        if is_finished(folder, provenance, job.keep_weights):
            print(
                f"{run.name}: kept, because it was made with the same settings, images and code"
                + other_versions(folder, job.versions)
            )
        else:
            # A run that is trained again does not exist until it is complete.
            (folder / RUN_RECORD).unlink(missing_ok=True)
            try:
                _train_run(seeded_job, run, folders, checkpoint, provenance)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                raise DiagvibError(
                    f"{run.name}: the GPU's memory is too small; lower the batch_size of "
                    f"{run.baseline} (now {job.settings['batch_size']}), let fewer programs use the "
                    "GPU at once, or set device: cpu"
                ) from None
        checkpoint.remove()


def _train_run(
    job: Job, run: Run, folders: Folders, checkpoint: Checkpoint, provenance: dict
) -> None:
    started, out = time.perf_counter(), folders.runs / run.folder
    data = load(job, run)
    curves = folders.curves and folders.curves / run.folder
    method, fitted = fit(job, run, data, checkpoint, run.name, curves)
    trained = time.perf_counter()
    test, batches = load_test(job, run, data.train.scaling)
    predicted, predictions = predict_test(job, run, method, test, batches)
    rule = job.settings.get("selection", "val_loss")
    doubts = run_doubts(method, rule, data, tested_cells(test, run), predicted)
    saliency_rows = shown_images(test, run, SALIENCY_IMAGES)
    looks = shares(method, batches, test, run.factors, saliency_rows, job.protocol)
    facts = {**method.selections, "doubts": doubts, **({"saliency": looks} if looks else {})}
    counts = {"-".join(cell): count for cell, count in cell_counts(data.train).items()}
    metrics = write_results(run, fitted, test, predictions, counts, facts, out)
    write_visualisations(out / "exhibits.parquet", method, batches, test, run, job.protocol)
    write_weights(method, job.keep_weights, out)
    finished = time.perf_counter()
    measured_facts = {
        **fitted.trained_on,
        "parameters": sum(p.numel() for p in method.parameters()),
        "train_images": len(data.train),
        "pixel_mean": data.train.scaling.mean,
        "pixel_std": data.train.scaling.std,
        "seconds": {"train": round(trained - started, 2), "test": round(finished - trained, 2)},
        "images_per_second": fitted.images_per_second and round(fitted.images_per_second, 1),
    }
    write_record(job, provenance, measured_facts, out)
    accuracy = ", ".join(
        f"{name} {100 * group['accuracy']:.1f} %" for name, group in metrics["groups"].items()
    )
    say(
        f"{run.name}: {accuracy} (mean per-class accuracy), epoch {fitted.selected_epoch} of "
        f"{len(fitted.history)} selected, {finished - started:.0f} s",
        *(f"{run.name}: doubtful, {doubt}" for doubt in doubts),
    )
