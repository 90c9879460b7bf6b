"""Public names: the metrics of the paper."""

from diagvib.results.metrics import faavg, famin
from diagvib.results.uncertainty import Estimate
from diagvib.training.accuracy import mean_per_class_accuracy, per_class_accuracy

__all__ = ["Estimate", "faavg", "famin", "mean_per_class_accuracy", "per_class_accuracy"]
