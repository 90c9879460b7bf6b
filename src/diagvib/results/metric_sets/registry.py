"""The sets of metrics by name, from `diagvib.studies.metric_needs.METRICS`."""

from importlib import import_module

from diagvib.results.metric_sets.metric_set import MetricSet
from diagvib.studies.metric_needs import metric_set_modules

METRIC_SETS: dict[str, MetricSet] = {
    name: import_module(module).METRIC_SET for name, module in metric_set_modules().items()
}
