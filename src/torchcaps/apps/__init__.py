"""Programs made of the library: the command line, the studio, reports, benchmarks, export, scikit-learn estimators."""
