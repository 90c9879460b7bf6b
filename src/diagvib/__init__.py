"""DiagViB-6 from the raw sources to the paper's tables: draw recipes, render images, train baselines, tabulate."""

__version__ = "0.1.0"
