"""Sets of metrics of no paper's own. To add one, add a file here and a line in `diagvib.studies.metric_needs.METRICS`."""
