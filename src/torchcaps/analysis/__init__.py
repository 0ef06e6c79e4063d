"""Analysis of networks: functions from a model and data to plain data. Figures are in `plots`."""
